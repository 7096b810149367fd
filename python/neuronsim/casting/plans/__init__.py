"""Plans: what a policy decides for each instruction of a module, and why."""
