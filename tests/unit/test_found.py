"""Which of two reports on a group's master counts, in any order in which threads write them."""

import pytest

from celery_delayq.contrib.moving import KnownMaster, MasterCache

pytestmark = pytest.mark.libraries

OLD, NEW = ("old", 1), ("new", 2)


def racing(meanwhile):
    """A cache that runs *meanwhile*, as another thread would, between a read and its write."""

    class Racing(MasterCache):
        _looks = 0

        @property
        def _named(self):
            self._looks += 1
            return KnownMaster() if self._looks == 1 else self._word

        @_named.setter
        def _named(self, word):
            self._word = word

    found = Racing()
    found._named = meanwhile
    return found


@pytest.mark.parametrize(("meanwhile", "is_learnt"), [(NEW, False), (OLD, True)])
def test_a_later_word_of_another_thread_stays(meanwhile, is_learnt):
    found = racing(KnownMaster(meanwhile, 6.0))
    assert found.learn(OLD, 5.0) is is_learnt
    assert found.address == meanwhile


@pytest.mark.parametrize("meanwhile", [KnownMaster(NEW, 4.0), KnownMaster(None, 6.0)])
def test_an_earlier_word_of_another_thread_or_none_gives_way(meanwhile):
    found = racing(meanwhile)
    assert found.learn(OLD, 5.0)
    assert found.address == OLD
