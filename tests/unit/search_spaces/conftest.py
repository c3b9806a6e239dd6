from hypothesis import HealthCheck, settings

# A loaded machine must not fail a property: the examples count, not how long they take.
settings.register_profile(
    "patient", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("patient")
