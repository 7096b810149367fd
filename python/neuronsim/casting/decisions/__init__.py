"""What a policy decides for each instruction of a module: the record of a plan, how it is decided, its checks."""
