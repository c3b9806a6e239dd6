"""What may vary: parameters, rules between them, and how a configuration becomes vLLM arguments.

Pure: no I/O, no framework. The study presets lie beside it as YAML.
"""
