"""What the compilers' flags cast: flags, policies, plans and their application to a module.

- flags: `options` (reading them), `neuronx_cc` and `neuron_cc` (the tables), `flags` (what they
  decide), `integer_downcast` and `io_config` (checks of a module)
- policies: `policy` (the data), `policies` (the named ones), `policy_file`, `rules` with
  `calibration`, `operations` (the names that lists have), `recognition` with `patterns` (composites)
- plans: `decisions` (from a policy, by `propagation` over the `float_graph`), `plan`, `explain`,
  `report`, `lint` with `intervals` and `planned_computation`
- application: `apply` with `scalars`, `type_choice` (by a `minimum_cut` over what is
  `commuting`), `convert_merging`,
  `conversions`, `value_sets`; `derive` reads decisions back
- in common: `castable`, `fields` (of documents), `fingerprint`
"""
