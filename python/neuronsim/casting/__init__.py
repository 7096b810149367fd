"""What the compilers' flags cast: flags, policies, plans and their application to a module."""
