"""What the compilers' flags cast, and more: flags, policies, plans and their application to a module.

- `flags`: the options of both compilers as tables, what they decide, checks of a module
- `policies`: lists, rules and calibration that decide, the named ones and files; composites found
- `plans`: what a policy decides for each instruction, why, and how that is told
- `application`: the module rewritten with converts, as few bytes of them as can be
- `lint`: what a plan is known to break
- `fields`: reading the fields of JSON and TOML documents
"""
