"""How fast time passes in tests with a proxy that ends idle links."""

MOMENT = "DELAYQ_TEST_MOMENT"
PROXY = 60.0  # seconds after which such a proxy ends a link
SCALE = 60.0
