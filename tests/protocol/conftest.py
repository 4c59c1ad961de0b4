from tests.store.conftest import store, store_on

__all__ = ["store", "store_on"]
