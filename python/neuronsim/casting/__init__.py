"""What the compilers' flags cast, and more: flags, policies, plans and their application to a module.

From the top, each importing only from those below it:

- `lint`: what a plan is known to break; `plans`: a plan as users have it, and what is told of it
- `application`: the module rewritten with converts, as few bytes of them as can be
- `decisions`: what a policy decides for each instruction and why: the record of a plan, its checks
- `policies`: lists, rules and calibration that decide, the named ones and files
- `fields`: reading the fields of JSON and TOML documents
- `conversions`, `value_sets`: how a type is carried, what it holds
- `flags`: the options of both compilers as tables, what they decide, checks of a module
"""
