"""From models as people have them to `hlo.Module`: one recorder, and a door for each form."""
