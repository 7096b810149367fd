"""What a policy decides for the instructions of a module: its record, how it is made, its checks."""
