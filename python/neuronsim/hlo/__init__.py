"""HLO as XLA defines it: the module, its protobuf and text forms, and its verifier."""
