"""Functions as they are said: without arguments, and nothing else lost."""

from __future__ import annotations

import pytest

from udsprobe.model.code.frames import Frame, brief, frames_of, is_of_a_runtime, is_own

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
        ("Catalog::sorted() (.isra.0)", "Catalog::sorted"),
        (f"R<int> std::_Handler<std::unique_ptr<{'y' * 60}, T> (), std::T<u…", "std::_Handler<…>"),
        ("Full::mark(Set<Queue<oop*>, 5>*, Set<Qu…", "Full::mark"),
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
        "v8::(anonymous namespace)::run(Set<Qu…",
        "Full::mark_and_push<Set<Qu…",
        "\\x1b[31m<script>alert(1)</script>:a xxx…",
    ],
)
def test_other_names_stay(function: str) -> None:
    assert brief(function) == function


def test_methods_of_the_jdk_are_none_of_the_program_s() -> None:
    """The files of both have names without folders."""
    assert not is_own(Frame("java.util.ArrayList.add", "[jit]", "ArrayList.java", 455))
    assert not is_own(Frame("jdk.internal.misc.Unsafe.park", "[jit]", None, None))
    assert is_own(Frame("shop.Store.add", "[jit]", "Store.java", 12))
    assert is_own(Frame("javaScript.run", "[jit]", "/srv/java.js", 3))
    assert is_own(Frame("java.run", "[jit]", "/srv/java.js", 3))


def test_the_thread_that_waits_for_a_virtual_machine_s_end_is_the_runtime_s() -> None:
    joins = [
        Frame("JLI_Launch", "libjli.so", None, None),
        Frame("CallJavaMainInNewThread", "libjli.so", None, None),
        Frame("pthread_join", "libc.so.6", None, None),
    ]
    begins = [Frame("_start", "java", None, None), Frame("main", "java", None, None)]
    assert is_of_a_runtime(joins)
    assert is_of_a_runtime([*begins, *joins])
    embeds = [Frame("_start", "shop", None, None), Frame("main", "shop", None, None)]
    assert not is_of_a_runtime([*embeds, *joins])
    method = Frame("shop.Store.add", "[jit]", "Store.java", 12)
    assert not is_of_a_runtime([*begins, method, *joins])


def test_a_gem_is_a_library_that_the_program_chose() -> None:
    gems = "/var/lib/gems/3.1.0/gems/puma-6.0/lib/puma/server.rb"
    for file, own in (
        ("/srv/app/models/order.rb", True),
        (gems, True),
        ("/usr/lib/ruby/gems/3.1.0/gems/rack-3.0/lib/rack.rb", True),
        ("/usr/lib/ruby/vendor_ruby/sinatra/base.rb", True),
        ("/usr/lib/ruby/vendor_ruby/rubygems/core_ext/kernel_require.rb", False),
        ("/usr/local/lib/ruby/site_ruby/3.2.0/bundler/runtime.rb", False),
        ("/usr/lib/ruby/3.1.0/net/http.rb", False),
        ("/home/u/.rbenv/versions/3.2.2/lib/ruby/3.2.0/set.rb", False),
        ("<internal:kernel>", False),
        ("ruby:internal", False),
    ):
        assert is_own(Frame("Order#save", "libruby-3.1.so.3.1.2", file, 12)) is own, file
    assert not is_own(Frame("<main>", "libruby-3.1.so.3.1.2", "/srv/app.rb", None))
