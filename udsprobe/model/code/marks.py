"""By which functions a kind of code is known: the names, as data.

A name is in one of these lists only where nothing else goes by it. Where a program's functions have
no names, its code has no kind.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple, Optional, Pattern, Sequence, Tuple

KERNEL = "[kernel]"
YOUNG = "young"
Named = Tuple[Optional[str], Optional[str], Optional[str]]
"""A function, its module and its source file, as far as they are known."""


class Mark(NamedTuple):
    """Functions that tell one kind.

    Attributes:
        kind: of `KINDS`.
        functions: what a function's whole name matches, its C++ arguments and a Go receiver
            included.
        modules: what its module's name begins with; None: any program or library.
        called_by: the names of functions of which one has to have called it; None: whoever did.
        runtime: whose collector, compiler or library it is, by the names of servers; None: of no
            runtime.
        part: of the kind, where it has a remedy of its own.
        files: what is in the path of the function's source file; None: any, or none.
    """

    kind: str
    functions: Pattern[str]
    modules: Optional[Pattern[str]] = None
    called_by: Optional[Pattern[str]] = None
    runtime: Optional[str] = None
    part: Optional[str] = None
    files: Optional[Pattern[str]] = None


class Found(NamedTuple):
    """The mark of a stack, and where functions that tell its kind are: 0 is the outermost."""

    mark: Mark
    at: Tuple[int, ...]


# The first that a stack has: what makes the work comes before what that work is done by.
KINDS = (
    *("memory-reclaim", "memory-compaction", "garbage-collection", "tls-handshake"),
    *("password-hashing", "compression", "json-writing", "json-reading", "template-compiling"),
    *("templates", "regular-expression", "text-encoding", "tls-records"),
    *("process-creation", "disk-sync", "kernel-locks", "page-faults"),
)


def _names(*alternatives: str) -> Pattern[str]:
    return re.compile("|".join(alternatives))


_JAVA, _PHP = _names("libjvm"), _names("php", "libphp", "mod_php")
_RUBY = _names("libruby", "ruby")
_V8 = r"(non-virtual thunk to )?v8::internal::"
_GO_TLS = r"(vendor/)?crypto/tls\."
_TLS_ENTRIES = _names("SSL_(read|write|peek|do_handshake|accept|connect)(_ex|_early_data)?")

_MEMORY = (
    Mark(
        "memory-reclaim",
        _names(
            r"(do_)?try_to_free_(mem_cgroup_)?pages",
            r"mem_cgroup_handle_over_high|__mem_cgroup_handle_over_high|reclaim_high",
            r"__alloc_pages_direct_reclaim|__perform_reclaim",
            r"shrink_(node|lruvec|slab|folio_list|inactive_list|active_list)(\.\w+)*",
            r"do_swap_page|swap_readpage|swap_read_folio|swap_writepage|swap_writeout",
        ),
        _names(re.escape(KERNEL)),
    ),
    Mark(
        "memory-compaction",
        _names(
            r"try_to_compact_pages|__alloc_pages_direct_compact|compact_zone(_order)?(\.\w+)*",
            r"(clear|copy_user)_huge_page|folio_zero_user|clear_subpage|copy_user_large_folio",
            r"(__)?do_huge_pmd_\w+|vma_alloc_anon_folio_pmd",
        ),
        _names(re.escape(KERNEL)),
    ),
)
_COLLECTORS = (
    Mark(
        "garbage-collection",
        _names(
            r"DefNewGeneration::(collect|copy_to_survivor_space)\b.*|SerialHeap::young_\w+\b.*",
            r"(PSScavenge|PSPromotionManager|ScavengeRootsTask)::.*",
            r"G1(ParScanThreadState|EvacuateRegions\w*Task|YoungCollector)::.*",
            r"ZGenerationYoung::.*",
        ),
        _JAVA,
        runtime="java",
        part=YOUNG,
    ),
    Mark(
        "garbage-collection",
        _names(
            r"(GenMarkSweep|MarkSweep|SerialFullGC|PSParallelCompact\w*|ParCompactionManager)::.*",
            r"(TenuredGeneration|GenCollectedHeap|SerialHeap)::(do_)?(full_)?collect\w*\b.*",
            r"(ParallelScavengeHeap|G1CollectedHeap)::(do_\w*collect\w*|collect\w*)\b.*",
            r"VM_(GenCollect\w*|G1\w*|ParallelGC\w*|ParallelCollect\w*|CollectFor\w*)::doit\b.*",
            r"G1(Full\w+|CM\w+|ConcurrentMark\w*|ConcurrentRefine\w*|RemSet|Rebuild\w+)::.*",
            r"G1(PostEvacuate\w+|BatchedGangTask|BatchedTask|MergeHeapRootsTask)::.*",
            r"Z(Mark\w*|Relocat\w+|Driver\w*|ReferenceProcessor\w*|GenerationOld)::.*",
            r"Shenandoah(\w*GC|\w*Mark\w*|\w*Task|ControlThread|Evac\w+)::.*",
        ),
        _JAVA,
        runtime="java",
    ),
    Mark(
        "garbage-collection",
        _names(
            rf"{_V8}(ScavengerCollector|Scavenger|ScavengeVisitor)\b.*",
            rf"{_V8}(IterateAndScavenge\w+|RootScavengeVisitor|Minor(Mark\w+|GC\w+))\b.*",
            rf"{_V8}(YoungGeneration\w+)::.*",
        ),
        runtime="node",
        part=YOUNG,
    ),
    Mark(
        "garbage-collection",
        _names(
            rf"{_V8}(MarkCompactCollector|ConcurrentMarking\w*|IncrementalMarking\w*)::.*",
            rf"{_V8}(Sweeper|Evacuat\w+|PageEvacuationJob|ParallelMarking\w*)::.*",
            rf"{_V8}Heap::(CollectGarbage|PerformGarbageCollection|CollectAll\w+)\b.*",
        ),
        runtime="node",
    ),
    Mark(
        "garbage-collection",
        _names(
            r"runtime\.gc(BgMarkWorker|Drain|Assist|Mark|Start|Sweep|ParkAssist)\w*(\.\w+)*",
            r"runtime\.(bgsweep|sweepone|scanobject|scanblock|scanConservative|greyobject)",
            r"runtime\.(markroot\w*|scanstack|scanSpan\w*|wbBufFlush\w*)(\.\w+)*",
            r"runtime\.\(\*(gcWork|mspan|sweepLocked|gcControllerState)\)\."
            r"(balance|tryGet\w*|put\w*|sweep|findRunnableGCWorker|enlistWorker)",
        ),
        runtime="go",
    ),
    Mark(
        "garbage-collection",
        _names(
            r"gc_collect_(main|generations?|with_callback|internal|young|increment|full|region)"
            r"(\.\w+)*",
            r"_?PyGC_Collect\w*|_Py_RunGC|deduce_unreachable(\.\w+)*",
        ),
        _names("libpython", "python"),
        runtime="python",
    ),
    Mark(
        "garbage-collection",
        _names(
            r"(rb_)?gc(_impl)?_start(_internal)?|garbage_collect(_with_gvl)?|gc_(marks|sweep)\w*",
            r"gc_(rest|sweep_step|sweep_continue|mark_stacked_objects\w*|mark_children)",
            r"GC\.start|GC\.compact|ObjectSpace\.garbage_collect",
        ),
        _RUBY,
        runtime="ruby",
    ),
    Mark(
        "garbage-collection",
        _names(r"(zend_)?gc_(collect_cycles|collect_roots|mark_roots|scan_roots|run)"),
        _PHP,
        runtime="php-fpm",
    ),
    Mark(
        "garbage-collection",
        _names(r"(SVR|WKS)::gc_heap::.*"),
        _names("libcoreclr", "libclrgc"),
    ),
)
_TLS = (
    Mark(
        "tls-handshake",
        _names(
            r"SSL_(do_handshake|accept|connect|read_early_data)|ossl_statem_\w+",
            r"ngx_ssl_handshake|ssl_sock_handshake|bssl::ssl_(server|client)_handshake\(.*",
            r"gnutls_handshake|mbedtls_ssl_handshake\w*|wolfSSL_(accept|connect)",
            _GO_TLS + r"\(\*(Conn|serverHandshakeState\w*|clientHandshakeState\w*)\)\."
            r"((server|client)?[hH]andshake\w*|HandshakeContext|doFullHandshake)(\.\w+)*",
            r"(\S+ )?sun\.security\.ssl\.(\w*Handshake\w*|SSLEngineImpl\$DelegatedTask\S*)\..*",
        ),
    ),
    # Where the library's own functions have no names: what it asks of keys it asks in handshakes.
    Mark(
        "tls-handshake",
        _names(
            r"(EVP_PKEY_(sign|verify|derive|encapsulate|decapsulate|decrypt|keygen)\w*)",
            r"EVP_Digest(Sign|Verify)(Final)?|(RSA|ECDSA|ECDH)_\w+|X509_verify_cert",
            r"BN_mod_exp\w*|EC_POINT_mul",
        ),
        called_by=_TLS_ENTRIES,
    ),
)
_RECORDS = (
    Mark(
        "tls-records",
        _names(
            r"SSL_(read|write|peek|sendfile)(_ex)?|gnutls_record_(send|recv)\w*",
            r"mbedtls_ssl_(read|write)|wolfSSL_(read|write)",
            _GO_TLS + r"\(\*(Conn|halfConn)\)\."
            r"(Read|Write|readRecord\w*|writeRecord\w*|encrypt|decrypt)",
            r"(\S+ )?sun\.security\.ssl\.SSLEngine(Input|Output)Record\..*",
        ),
    ),
    # The kernel's TLS (kTLS).
    Mark("tls-records", _names(r"tls_(sw|device)_\w+"), _names(re.escape(KERNEL))),
)
_PASSWORDS = (
    Mark(
        "password-hashing",
        _names(r"password_(hash|verify)|hash_pbkdf2|openssl_pbkdf2|sodium_crypto_pwhash\w*"),
        _PHP,
    ),
    Mark(
        "password-hashing",
        _names(r"OpenSSL::KDF\.(pbkdf2_hmac|scrypt)|BCrypt::Engine\.__bc_crypt|String#crypt"),
        _RUBY,
    ),
    Mark(
        "password-hashing",
        _names(
            r"PKCS5_PBKDF2_HMAC(_SHA1)?|EVP_PBE_scrypt(_ex)?|crypt(_r|_rn|_ra)?|_crypt_\w+_rn",
            r"pg_crypt|px_crypt\w*|php_(crypt|password_\w+)|zif_(password_hash|password_verify)",
            r"zif_hash_pbkdf2|argon2(i|d|id)?_\w+|bcrypt(_\w+)?|crypto_pwhash\w*",
            r"node::crypto::(PBKDF2|Scrypt)\w*::.*",
            r"(golang\.org/x/)?crypto/(internal/fips140/)?(bcrypt|scrypt|argon2|pbkdf2)\..*",
            r"(\S+ )?(com\.sun\.crypto\.provider\.PBKDF2|org\.mindrot\.jbcrypt\.)\S*.*",
        ),
    ),
)
_COMPRESSORS = (
    Mark(
        "compression",
        _names(r"gz(compress|deflate|encode)|zlib_encode|deflate_add|bzcompress|ob_gzhandler"),
        _PHP,
    ),
    Mark("compression", _names(r"Zlib::(Deflate|GzipWriter)[#.]\w+|Zlib\.(deflate|gzip)"), _RUBY),
    Mark(
        "compression",
        _names(
            r"deflate(_\w+)?|BrotliEncoder\w+|ZSTD_(e_)?[cC]ompress\w*",
            r"LZ4F?_compress\w*|lzma_(stream_encoder|easy_buffer_encode)\w*|BZ2_bzCompress\w*",
            r"PREFIX\(deflate\w*\)|zng_deflate\w*|libdeflate_\w*_compress\w*",
            r"compress/(flate|lzw)\.\(\*(compressor|Writer|huffmanBitWriter|deflateFast)\)\..*",
            r"compress/(gzip|zlib)\.\(\*Writer\)\..*|github\.com/andybalholm/brotli\.\(\*Writer.*",
            r"github\.com/klauspost/compress/\w+\.\(\*(\w*Writer|compressor|Encoder)\)\..*",
            r"(\S+ )?java\.util\.zip\.Deflater\..*",
        ),
    ),
)
_EXPRESSIONS = (
    # Those that call functions of the program are of any kind.
    Mark(
        "regular-expression",
        _names(
            r"preg_(match(_all)?|replace|filter|split|grep)|mb_ereg(i|_match|_replace)?",
            # PHP 8.4 calls some without a frame of its own.
            r"php_pcre_(match|replace|split|grep)_impl",
        ),
        _PHP,
    ),
    Mark(
        "regular-expression",
        _names(r"Regexp#(match\??|=~|===|~)|String#(match\??|=~)"),
        _RUBY,
    ),
    Mark(
        "regular-expression",
        _names(
            r"pcre2_(jit_|dfa_)?match(_8|_16|_32)?|pcre(16_|32_)?_?(jit_|dfa_)?exec",
            r"regexec|re_search(_2)?(_internal)?(\.\w+)*|re_match(_2)?|pg_regexec|cdissect",
            r"onig_(search|match)\w*|rb_reg_(search|match|start_with)\w*",
            r"hs_scan\w*|(re2|duckdb_re2)::(RE2|DFA|NFA|OnePass|BitState)::.*",
            r"regexp\.\(\*(Regexp|machine|bitState)\)\..*|regexp\.(\(\*onePass.*|onePass\w+)",
            r"(\S+ )?java\.util\.regex\..*",
            r"(<?|\S+ )regex(_automata)?::(meta|re_\w+|exec|dfa|hybrid|nfa|util|regex)\b.*",
            r"std::__detail::_Executor<.*|boost::re_detail_\w+::perl_matcher.*",
            rf"{_V8}(RegExp\w*|NativeRegExp\w*|Irregexp\w*)(::.*|\b.*)|RegExp:.*",
            r"Builtins?[:_]RegExp\w*",
        ),
    ),
    Mark(
        "regular-expression",
        _names(
            r"sre_(ucs[124]|u?lower\w*)?_?(match|search|count|charset)(\.\w+)*",
            r"_sre_SRE_(Pattern|Scanner)_\w+|pattern_subx(\.\w+)*",
        ),
        _names("libpython", "python", "_sre"),
        runtime="python",
    ),
)
_ANY = _names(r".+")
_JACKSON = r"(\S+ )?com\.fasterxml\.jackson\."
_JSON = (
    Mark(
        "json-writing",
        _names(
            rf"{_V8}(\(anonymous namespace\)::)?JsonStringif\w+\b.*|Builtins?[:_]JsonStringify",
            r"encoder_(call|listencode_\w+|encode_\w+)(\.\w+)*",
            r"(py|c|ascii)_e(ncode_basestring|scape_unicode)(_ascii)?(\.\w+)*",
            r"JSONEncoder\.(encode|iterencode)|_make_iterencode\.<locals>\.\w+",
            r"<?orjson::(serialize|ffi::\w*ser)\b.*|<?pydantic_core::serializers::.*",
            r"<?serde_json::(ser::|value::ser::|to_(string|vec|writer)).*",
            r"encoding/json\.(Marshal\w*|\(\*(Encoder|encodeState)\)\..*|append(String|Compact).*)",
            r"encoding/json\.(\(?\*?\w+Encoder\)?\.\w+|\w+Encoder)(-fm)?",
            _JACKSON + r"databind\.(ser\.|ObjectWriter|ObjectMapper\.write).*",
            _JACKSON + r"core\.(json\.\w*Generator|io\.(NumberOutput|JsonStringEncoder))\b.*",
            r"JSON::Ext::Generator::\S*#\w+|JSON\.(generate|dump|pretty_generate)",
        ),
    ),
    Mark("json-writing", _names(r"json_encode|php_json_encode\w*"), _PHP),
    Mark("json-writing", _ANY, files=_names(r"/(fastapi/encoders|rest_framework/renderers)\.py$")),
    Mark(
        "json-writing",
        _names(
            r"serialize_response|_prepare_response_content|ModelField\.serialize",
            r"(BaseModel|TypeAdapter)\.(model_dump(_json)?|dump_(python|json)|dict|json)",
        ),
        files=_names(r"/(fastapi|pydantic)/"),
    ),
    Mark(
        "json-reading",
        _names(
            rf"{_V8}Json(Parser|ParseInternalizer)\b.*|Builtins?[:_]JsonParse",
            r"scan(ner_call|_once_unicode)(\.\w+)*|_parse_(object|array)_unicode(\.\w+)*",
            r"JSONDecoder\.(raw_)?decode|<?orjson::deserialize\b.*",
            r"<?serde_json::(de::|value::de::|from_(str|slice|reader)).*",
            r"encoding/json\.(Unmarshal\w*|\(\*(Decoder|decodeState|scanner)\)\..*|checkValid)",
            _JACKSON + r"databind\.(deser\.|ObjectReader|ObjectMapper\.read).*",
            _JACKSON + r"core\.(json\.\w*Parser|sym\.\w+|io\.NumberInput)\b.*",
            r"JSON::Ext::Parser#parse|JSON\.(parse!?|load)",
        ),
    ),
    Mark("json-reading", _names(r"json_decode|php_json_(parser|scanner|decode)\w*"), _PHP),
)
_TEMPLATES = (
    Mark(
        "template-compiling",
        _names(
            r"text/template/parse\..*|html/template\.(\(\*escaper\)\..*|escapeTemplate)",
            r"(text|html)/template\.\(\*Template\)\.Parse\w*|ERB(::Compiler\S*)?#(compile|initialize)",
        ),
    ),
    Mark(
        "template-compiling",
        _ANY,
        files=_names(
            r"-packages/jinja2/(parser|lexer|compiler|nodes|optimizer|idtracking|visitor)\.py$",
            r"-packages/mako/(lexer|codegen|parsetree|pyparser)\.py$",
            r"/node_modules/pug-(lexer|parser|code-gen|linker)/",
            r"/node_modules/handlebars/(dist/\w+/handlebars/|lib/handlebars/)?compiler/",
        ),
    ),
    Mark(
        "template-compiling",
        _names(r"Template\.(compile|generateSource|parseTemplateText|scanLine)"),
        files=_names(r"/node_modules/ejs/"),
    ),
    Mark(
        "templates",
        _names(
            r"(text|html)/template\..*|(\S+ )?(org\.(thymeleaf|attoparser)|freemarker)\..*",
            r"__TwigTemplate_\w+::\w+|ERB#result\w*",
        ),
    ),
    Mark(
        "templates",
        _ANY,
        files=_names(
            r"-packages/(jinja2|markupsafe|mako|chameleon)/|/django/template/",
            r"/node_modules/(handlebars|nunjucks|mustache|eta|ejs|pug-runtime)/",
            r"/(actionview|haml|slim|temple|tilt)-\d",
            r"\.(html|htm|j2|jinja2?|mako|erb|haml|slim|twig|hbs|pug|ejs)$|^(<template>|\(erb\))$",
        ),
    ),
)
CALL_BACK = frozenset({"json-writing", "json-reading", "template-compiling", "templates"})
"""What these call of the program, or of a package, is not theirs."""

_ENCODING = (
    Mark(
        "text-encoding",
        _names(
            # What these do but for their calls on sockets they do for strings.
            r"node::StreamBase::(Writev|WriteString<.*)\(.*",
            r"node::StringBytes::(Size|StorageSize|Write|Encode)\b.*",
            r"v8::String::(Utf8Length|WriteUtf8|WriteOneByte)(V2)?\b.*",
            r"node::Buffer::\(anonymous namespace\)::SlowByteLengthUtf8\b.*",
        ),
    ),
)
_KERNEL_WORK = (
    Mark(
        "process-creation",
        _names(
            r"kernel_clone|_do_fork|copy_process|dup_mmap?|__x64_sys_(v?fork|clone3?)",
            r"do_execve\w*|bprm_execve|load_elf_binary|begin_new_exec|do_exit|exit_mmap",
        ),
        _names(re.escape(KERNEL)),
    ),
    Mark(
        "disk-sync",
        _names(
            r"vfs_fsync(_range)?|__x64_sys_(fsync|fdatasync|syncfs|sync|msync|sync_file_range)",
            r"__(se|do|arm64)_sys_(fsync|fdatasync|syncfs|sync|msync|sync_file_range)",
        ),
        _names(re.escape(KERNEL)),
    ),
    Mark(
        "kernel-locks",
        _names(
            r"(do_)?futex(_wait|_wake|_requeue|_lock_pi)?\w*|__futex_wait",
            r"(native_|__pv_)?queued_(spin|read|write)_lock_slowpath|osq_lock",
            r"rwsem_(optimistic_spin|down_\w+_slowpath|spin_on_owner)|mutex_spin_on_owner",
        ),
        _names(re.escape(KERNEL)),
    ),
    Mark(
        "page-faults",
        _names(r"do_user_addr_fault|exc_page_fault|do_page_fault|handle_mm_fault|do_mem_abort"),
        _names(re.escape(KERNEL)),
    ),
)
MARKS: Tuple[Mark, ...] = (
    *_MEMORY,
    *_COLLECTORS,
    *_TLS,
    *_PASSWORDS,
    *_COMPRESSORS,
    *_JSON,
    *_TEMPLATES,
    *_EXPRESSIONS,
    *_ENCODING,
    *_RECORDS,
    *_KERNEL_WORK,
)


def kind_of(frames: Sequence[Named]) -> Optional[Found]:
    """The mark of a stack; None when it has none that is known.

    Args:
        frames: function, module and source file, the outermost first.
    """
    met = [
        (mark, at)
        for at, (function, module, file) in enumerate(frames)
        for mark in _marks_of(function or "", module or "", file or "")
        if mark.called_by is None or _is_called_by(mark.called_by, frames[:at])
    ]
    if not met:
        return None
    # Of one kind the innermost tells the part.
    first, _ = min(met, key=lambda each: (KINDS.index(each[0].kind), -each[1]))
    return Found(first, tuple(at for mark, at in met if mark.kind == first.kind))


def _is_called_by(names: Pattern[str], outwards: Sequence[Named]) -> bool:
    return any(names.fullmatch(function or "") for function, _, _ in outwards)


@lru_cache(maxsize=8192)
def _marks_of(function: str, module: str, file: str) -> Tuple[Mark, ...]:
    return tuple(
        mark
        for mark in MARKS
        if mark.functions.fullmatch(function)
        and _is_in(mark.modules, module)
        and (mark.files is None or mark.files.search(file))
    )


def _is_in(modules: Optional[Pattern[str]], module: str) -> bool:
    """What the kernel does goes by its own marks only."""
    return module != KERNEL if modules is None else modules.match(module) is not None
