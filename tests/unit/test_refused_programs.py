"""Who refused the programs, by what the kernel said: the verifier, or a policy before it."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from udsprobe.kernel.abilities.built_objects import built_program
from udsprobe.kernel.abilities.features import Features
from udsprobe.kernel.objects.libbpf import LibbpfError
from udsprobe.kernel.objects.probe_object import ProbeObject
from udsprobe.kernel.objects.walked_object import MAP_ITERATORS, WalkedObject, walk_of
from udsprobe.kernel.programs.loader import kind_of_object, refusal, verifier_refusal

FEATURES = Features(
    frozenset(), direct_loads=True, task_storage=True, sleeping_calls=True, preemptible=False
)
FAILED = "libbpf: prog 'list_listeners': BPF program load failed: {why}"
END = "processed {walked} insns (limit 1000000) max_states_per_insn 0 total_states 0"


def said(code: int, why: str, walked: int, words: str = "") -> LibbpfError:
    lines = [FAILED.format(why=why), *([words] if words else []), END.format(walked=walked)]
    return LibbpfError("bpf_object__load", code, "\n".join(lines))


@pytest.fixture
def raw() -> bytes:
    return built_program("tracepoint")


def test_what_is_forbidden_before_it_is_read_is_no_fault_of_the_build(raw: bytes) -> None:
    """As where iterators over maps are, of an object that the verifier would take."""
    error = said(errno.EPERM, "Operation not permitted", walked=0)
    assert verifier_refusal(error, raw) is None
    told = refusal(error)
    assert told.slug == "refused"
    assert told.line().startswith("udsprobe: error[refused]: the policy of this kernel refuses")


@pytest.mark.parametrize("code", [errno.EPERM, errno.EACCES, errno.EINVAL])
def test_what_was_read_is_the_builds(code: int, raw: bytes) -> None:
    told = verifier_refusal(said(code, "no", walked=12, words="R1 invalid mem access"), raw)
    assert told is not None and told.slug == "verifier"
    assert "R1 invalid mem access" in told.line()


def test_walks_are_for_kernels_that_forbid_iterators() -> None:
    assert kind_of_object(FEATURES) is ProbeObject
    assert kind_of_object(replace(FEATURES, walks=True)) is WalkedObject


@pytest.mark.parametrize("program", sorted(MAP_ITERATORS))
def test_each_iterator_over_a_map_has_a_twin(program: str, raw: bytes) -> None:
    opened = ProbeObject(raw)
    try:
        assert opened.has(program) and opened.has(walk_of(program))
    finally:
        opened.close()
