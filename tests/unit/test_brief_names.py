"""Functions as they are said: without arguments, and nothing else lost."""

from __future__ import annotations

import pytest

from udsprobe.model.code.frames import brief, frames_of

V8 = "v8::internal::JsonStringifier"


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (f"{V8}::Result {V8}::Serialize_<true>({V8}, bool)", f"{V8}::Serialize_<true>"),
        ("foo::bar(int (*)(char)) const [clone .part.0]", "foo::bar"),
        ("foo::operator()(int) const", "foo::operator()"),
        ("operator new(unsigned long)", "operator new"),
        ("void (anonymous namespace)::g<int>(int)", "(anonymous namespace)::g<int>"),
        (f"void x::E<{'y' * 60}, z<1>>::run(int)", "x::E<…>::run"),
        ("com.shop.Cart::total(java.lang.String)", "com.shop.Cart::total"),
    ],
)
def test_arguments_and_results_are_left_out(function: str, says: str) -> None:
    assert brief(function) == says
    (frame,) = frames_of(f"{function}\tnode\t\t")
    assert frame.named() == f"{says} (node)" and frame.function == function


@pytest.mark.parametrize(
    "function",
    [
        "main.(*Server).ServeHTTP",
        "main.main.func2",
        "main.Map[go.shape.int].func1",
        "<alloc::vec::Vec<T> as core::ops::Drop>::drop",
        "core::ops::function::FnOnce::call_once{{vtable.shim}}",
        "(anonymous namespace)",
        "foo (x",
        "foo)",
        "()",
        "SSL_read",
        "not <closed(",
    ],
)
def test_other_names_stay(function: str) -> None:
    assert brief(function) == function
