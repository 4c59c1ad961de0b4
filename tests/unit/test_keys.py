"""Names of keys: under one prefix, on one cluster node, and declared with their type."""

import pytest
from redis.crc import key_slot

from celery_delayq.store.keys import KEYS, Keys


@pytest.mark.parametrize("name", KEYS)
def test_a_key_is_its_name_behind_the_shards_hash_tag(name):
    assert Keys("shop")[name] == f"{{shop:0}}:{name}"


def test_all_keys_of_a_shard_share_a_cluster_slot():
    keys = Keys("shop", 7)
    assert len({key_slot(keys[name].encode()) for name in KEYS}) == 1


def test_two_prefixes_share_no_key():
    one, other = Keys("a"), Keys("a.b")
    assert not {one[name] for name in KEYS} & {other[name] for name in KEYS}


def test_only_declared_names_are_there():
    with pytest.raises(KeyError):
        Keys("shop")["dues"]


@pytest.mark.parametrize(("name", "says"), KEYS.items())
def test_every_key_declares_its_type_and_content(name, says):
    kind, _, content = says.partition("  ")
    assert kind in {"ZSET", "HASH", "LIST", "STRING"}
    assert content
