"""One BPF object from file to attached programs: open, configure, load, attach, close.

Nothing is pinned: when this process ends, however it ends, the kernel takes
everything back with the last file descriptor.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
from typing import (
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Type,
)

from udsprobe.kernel.objects.btf import Btf
from udsprobe.kernel.objects.libbpf import LibbpfError, ProgInfo, libbpf, program_info
from udsprobe.kernel.objects.own_memory import untouched

BPF_NOEXIST, NO_PREALLOC = 1, 1
ITERATOR_READ_BYTES = max(1 << 18, 8 * mmap.PAGESIZE)
BATCH_ENTRIES, BATCH_ENTRIES_MIN, BATCH_BYTES = 1024, 16, 1 << 20
# `enum bpf_map_type` (include/uapi/linux/bpf.h)
HASH, ARRAY, PERCPU_ARRAY, LRU_HASH, QUEUE = 1, 2, 6, 9, 22


class MapShape(NamedTuple):
    """A map as the object declares it, or as it was resized.

    Attributes:
        name: `.bss` and the like of sections.
        kind: of `enum bpf_map_type`.
        key_bytes, value_bytes: of one entry, on one CPU.
        entries: how many there can be.
    """

    name: str
    kind: int
    key_bytes: int
    value_bytes: int
    entries: int


class _OpenOptions(ctypes.Structure):
    _fields_ = [("sz", ctypes.c_size_t), ("object_name", ctypes.c_char_p)]


class _MapIteratorInfo(ctypes.Structure):
    """`union bpf_iter_link_info`, whose largest member has 16 bytes."""

    _fields_ = [("map_fd", ctypes.c_uint32), ("rest", ctypes.c_uint32 * 3)]


class _IteratorOptions(ctypes.Structure):
    _fields_ = [
        ("sz", ctypes.c_size_t),
        ("link_info", ctypes.c_void_p),
        ("link_info_len", ctypes.c_uint32),
    ]


def records(raw: bytes, layout: Type[ctypes.Structure]) -> List[Any]:
    """What an iterator program wrote, one ctypes twin for each record."""
    size = ctypes.sizeof(layout)
    return [layout.from_buffer_copy(raw, at) for at in range(0, len(raw) - size + 1, size)]


def words_of(layout: Type[ctypes.Structure], names: Sequence[str]) -> struct.Struct:
    """Unpacks these 64-bit members of a structure, in the order they lie in, and no others."""
    members = [getattr(layout, name) for name in names]
    form, end = "<", 0
    for member in members:
        if member.size != 8 or member.offset < end:
            raise ValueError(
                f"{names} of {layout.__name__} are not 64 bits each, one behind another"
            )
        form += f"{member.offset - end}xQ"
        end = member.offset + member.size
    return struct.Struct(f"{form}{ctypes.sizeof(layout) - end}x")


class ProbeObject:
    """A BPF object in the hands of libbpf.

    Args:
        raw: the content of a `.bpf.o`.

    Attributes:
        btf: the object's own types, section offsets filled in by libbpf.

    Raises:
        LibbpfError: libbpf cannot open it.
    """

    def __init__(self, raw: bytes) -> None:
        self._bpf = libbpf()
        options = _OpenOptions(ctypes.sizeof(_OpenOptions), b"udsprobe")
        self._object = self._bpf.pointer(
            "bpf_object__open_mem", raw, len(raw), ctypes.addressof(options)
        )
        self.btf = Btf(self._raw_btf())
        self._links: Dict[str, int] = {}
        self._iterators: Dict[str, int] = {}
        # libbpf goes through all of them to find one.
        self._maps_found: Dict[str, int] = {}
        self._programs_found: Dict[str, int] = {}
        self._mapped: Dict[Tuple[str, int, bool], mmap.mmap] = {}
        # Of the maps that have all their memory from the beginning.
        self._lasting_bytes: Optional[int] = None
        # By map: taken anew for each reading, they are cleared and scattered over the heap.
        self._batch_buffers: Dict[Tuple[str, int, int], Tuple[Any, Any]] = {}
        self._read_buffer = untouched(ITERATOR_READ_BYTES)

    def set_options(self, values: Mapping[str, bytes]) -> None:
        """Write `const volatile` globals, before `load`.

        Args:
            values: name → its bytes, exactly as many as the variable has.
        """
        variables = self.btf.variables(".rodata")
        size = ctypes.c_size_t()
        image = self._bpf.pointer(
            "bpf_map__initial_value", self._map(".rodata"), ctypes.byref(size)
        )
        for name, value in values.items():
            place = variables[name]
            if len(value) != place.size_bytes:
                raise ValueError(f"{name} has {place.size_bytes} bytes, not {len(value)}")
            ctypes.memmove(image + place.offset_bytes, value, len(value))

    def resize(self, map_name: str, entries: int) -> None:
        """Set a map's bound, before `load`."""
        self._bpf.call("bpf_map__set_max_entries", self._map(map_name), entries)

    def allocate_late(self, map_name: str) -> None:
        """Take a hash map's memory when entries come (BPF_F_NO_PREALLOC), before `load`."""
        self._bpf.call("bpf_map__set_map_flags", self._map(map_name), NO_PREALLOC)

    def share(self, map_name: str, descriptor: int) -> None:
        """Use another object's map of that layout, before `load`."""
        self._bpf.call("bpf_map__reuse_fd", self._map(map_name), descriptor)

    def leave_out(self, program: str) -> None:
        """Do not load `program`."""
        self._bpf.call("bpf_program__set_autoload", self._program(program), False)

    def has(self, program: str) -> bool:
        """Whether the object was built with it."""
        find = self._bpf.functions.bpf_object__find_program_by_name
        return bool(find(self._object, program.encode()))

    def aim(self, program: str, function: str) -> None:
        """Verify `program` as one of a function of the kernel, before `load`."""
        target = self._program(program)
        self._bpf.call("bpf_program__set_attach_target", target, 0, function.encode())

    def load(self) -> None:
        """Verify and load maps and programs.

        Raises:
            LibbpfError: with the verifier's words in `log`.
        """
        self._bpf.call("bpf_object__load", self._object)

    def attach(self, program: str) -> None:
        """Attach by the program's section name.

        Raises:
            LibbpfError: the kernel refused.
        """
        self._links[program] = self._bpf.pointer("bpf_program__attach", self._program(program))

    def attach_to_perf_event(self, program: str, descriptor: int) -> None:
        """Attach to an open event, which libbpf enables and closes with the link.

        Raises:
            LibbpfError: the kernel refused.
        """
        self._links[f"{program}:{descriptor}"] = self._bpf.pointer(
            "bpf_program__attach_perf_event", self._program(program), descriptor
        )

    def descriptor(self, map_name: str) -> int:
        """Of a map that is loaded."""
        return self._map_fd(map_name)

    def take_back_if_there(self, programs: Iterable[str]) -> None:
        """Detach some, the last first; they may be attached again."""
        for program in reversed(list(programs)):
            if program in self._links:
                self._bpf.functions.bpf_link__destroy(self._links.pop(program))

    def array_to_jump_by(self, map_name: str, program: str) -> int:
        """Make `program` the first of an array of programs, and return its descriptor."""
        loaded = self._bpf.call("bpf_program__fd", self._program(program))
        self.update(map_name, struct.pack("<I", 0), struct.pack("<I", loaded))
        return self._map_fd(map_name)

    def detach(self) -> None:
        """Detach every program that runs on events, the last attached first.

        Maps and iterators stay readable.
        """
        for link in reversed(list(self._links.values())):
            self._bpf.functions.bpf_link__destroy(link)
        self._links.clear()

    def close(self) -> None:
        """Give everything back. May be called twice."""
        if not self._object:
            return
        self.detach()
        for link in self._iterators.values():
            self._bpf.functions.bpf_link__destroy(link)
        self._iterators.clear()
        self._maps_found.clear()
        self._programs_found.clear()
        self._bpf.functions.bpf_object__close(self._object)
        self._object = 0

    def iterate(self, program: str, *, over: Optional[str] = None) -> bytes:
        """Run an iterator program over all its objects.

        Args:
            over: the map whose elements it visits, for `iter/bpf_map_elem`.

        Returns:
            What it wrote: records, one behind the other.
        """
        return b"".join(self.parts(program, over=over))

    def prepare_iterator(self, program: str, *, over: Optional[str] = None) -> None:
        """Attach it while there are privileges, once: reading it takes none."""
        if program not in self._iterators:
            self._iterators[program] = self._attach_iterator(program, over)

    def parts(self, program: str, *, over: Optional[str] = None) -> Iterator[bytes]:
        """The same in parts of whole records, where there can be very many.

        A read hands over what is in the iterator's own buffer of 8 pages, which ends with a
        whole object (Linux kernel/bpf/bpf_iter.c, bpf_seq_read).
        """
        self.prepare_iterator(program, over=over)
        link = self._bpf.functions.bpf_link__fd(self._iterators[program])
        descriptor = self._bpf.call("bpf_iter_create", link)
        try:
            yield from iter(lambda: self._read(descriptor), b"")
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int) -> bytes:
        # Taken anew for each reading, a buffer of this size is mapped and unmapped each time.
        count = os.readv(descriptor, [self._read_buffer])
        return bytes(memoryview(self._read_buffer)[:count])

    def mapped(self, map_name: str, size_bytes: int, *, writable: bool = False) -> mmap.mmap:
        """The live content of an mmap-able array or of `.bss`; the same for all that ask."""
        kind = (map_name, size_bytes, writable)
        if kind not in self._mapped:
            protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
            shared = mmap.mmap(self._map_fd(map_name), size_bytes, mmap.MAP_SHARED, protection)
            self._mapped[kind] = shared
        return self._mapped[kind]

    def mapped_for_now(self, map_name: str, size_bytes: int) -> mmap.mmap:
        """The same, for the caller to close."""
        return mmap.mmap(self._map_fd(map_name), size_bytes, mmap.MAP_SHARED, mmap.PROT_READ)

    def update(self, map_name: str, key: bytes, value: bytes, flags: int = 0) -> None:
        """`bpf_map_update_elem`. Raises LibbpfError (EEXIST with BPF_NOEXIST, E2BIG when full)."""
        self._bpf.call("bpf_map_update_elem", self._map_fd(map_name), key, value, flags)

    def update_all(
        self, map_name: str, keys: bytearray, values: bytearray, value_bytes: int
    ) -> int:
        """Put entries in whose keys are not there yet.

        Args:
            keys, values: of all of them, one behind the other.

        Returns:
            How many found no room.
        """
        entries = len(values) // value_bytes
        key_bytes = len(keys) // max(1, entries)
        refused = 0
        for at in range(entries):
            key = bytes(keys[at * key_bytes : (at + 1) * key_bytes])
            value = bytes(values[at * value_bytes : (at + 1) * value_bytes])
            try:
                self.update(map_name, key, value, BPF_NOEXIST)
            except LibbpfError as error:
                refused += error.errno != errno.EEXIST
        return refused

    def maps_bytes(self) -> int:
        """Memory of all maps, by the kernel's account of each (`memlock` in fdinfo).

        Exact since Linux kernel commit 90a5527d7686 "bpf: add new map ops ->map_mem_usage" (in
        v6.4); before, of hash maps what they would take if they were full.
        """
        if self._lasting_bytes is None:
            lasting = (each for each in self._maps() if not self._takes_late(each))
            self._lasting_bytes = sum(map(self._bytes_of, lasting))
        late = filter(self._takes_late, self._maps())
        return self._lasting_bytes + sum(map(self._bytes_of, late))

    def _takes_late(self, handle: int) -> bool:
        return bool(self._bpf.functions.bpf_map__map_flags(handle) & NO_PREALLOC)

    def _bytes_of(self, handle: int) -> int:
        descriptor = self._bpf.call("bpf_map__fd", handle)
        with open(f"/proc/self/fdinfo/{descriptor}", "rb", buffering=0) as info:
            _, found, rest = info.read().partition(b"\nmemlock:")
        return int(rest.split(b"\n", 1)[0]) if found else 0

    def shapes(self) -> List[MapShape]:
        """Of all maps, those of sections included."""
        return [self._shape(handle) for handle in self._maps()]

    def _shape(self, handle: int) -> MapShape:
        functions = self._bpf.functions
        name: bytes = functions.bpf_map__name(handle)
        return MapShape(
            # A section's is that of the object, and its own.
            name[name.find(b".") :].decode() if b"." in name else name.decode(),
            functions.bpf_map__type(handle),
            functions.bpf_map__key_size(handle),
            functions.bpf_map__value_size(handle),
            functions.bpf_map__max_entries(handle),
        )

    def _maps(self) -> Iterator[int]:
        find = self._bpf.functions.bpf_object__next_map
        handle: Optional[int] = find(self._object, None)
        while handle:
            yield handle
            handle = find(self._object, handle)

    def delete(self, map_name: str, key: bytes) -> None:
        """`bpf_map_delete_elem`; a key that is already gone is no error."""
        self._bpf.functions.bpf_map_delete_elem(self._map_fd(map_name), key)

    def empty(self, shape: MapShape) -> None:
        """All entries leave a hash map, or a queue.

        Raises:
            LibbpfError: the kernel refuses.
        """
        descriptor = self._map_fd(shape.name)
        if shape.kind == QUEUE:
            value = ctypes.create_string_buffer(shape.value_bytes)
            pop = self._bpf.functions.bpf_map_lookup_and_delete_elem
            while pop(descriptor, None, value) == 0:
                pass
            return
        key = ctypes.create_string_buffer(shape.key_bytes)
        # Mostly there are none, and then this costs a tenth of what a batch does.
        if self._bpf.functions.bpf_map_get_next_key(descriptor, None, key) == 0:
            for _ in self.take(shape.name, shape.key_bytes, shape.value_bytes):
                pass

    def entries(
        self, map_name: str, key_bytes: int, value_bytes: int
    ) -> Iterator[Tuple[bytes, bytes]]:
        """All (key, value) pairs of a hash map, read in batches."""
        return self._batches("bpf_map_lookup_batch", map_name, key_bytes, value_bytes)

    def elements(self, map_name: str, value_bytes: int, used: int) -> Iterator[bytes]:
        """The first `used` values of an array map."""
        descriptor = self._map_fd(map_name)
        value = ctypes.create_string_buffer(value_bytes)
        for index in range(used):
            key = ctypes.c_uint32(index)
            self._bpf.call("bpf_map_lookup_elem", descriptor, ctypes.byref(key), value)
            yield value.raw

    def take(
        self, map_name: str, key_bytes: int, value_bytes: int
    ) -> Iterator[Tuple[bytes, bytes]]:
        """The same, and the pairs leave the map."""
        return self._batches("bpf_map_lookup_and_delete_batch", map_name, key_bytes, value_bytes)

    def _batches(
        self, function: str, map_name: str, key_bytes: int, value_bytes: int
    ) -> Iterator[Tuple[bytes, bytes]]:
        size = max(BATCH_ENTRIES_MIN, min(BATCH_ENTRIES, BATCH_BYTES // value_bytes))
        kind = (map_name, key_bytes, value_bytes)
        # Who reads the map again before this reading ends has buffers of its own.
        buffers = self._batch_buffers.pop(kind, None)
        keys, values = buffers or (
            untouched(key_bytes * size),
            untouched(value_bytes * size),
        )
        # Their `.raw` would copy all of it for every pair.
        key_view, value_view = memoryview(keys), memoryview(values)
        # The kernel keeps a bucket number there, whatever the key's size.
        cursor = ctypes.create_string_buffer(max(key_bytes, 8))
        start = None
        done = False
        while not done:
            count = ctypes.c_uint32(size)
            arguments = (start, cursor, keys, values, ctypes.byref(count), None)
            done = self._read_batch(function, self._map_fd(map_name), *arguments)
            for at in range(count.value):
                key = key_view[at * key_bytes : (at + 1) * key_bytes]
                value = value_view[at * value_bytes : (at + 1) * value_bytes]
                yield bytes(key), bytes(value)
            start = ctypes.byref(cursor)
        self._batch_buffers[kind] = (keys, values)

    def program_info(self, program: str) -> ProgInfo:
        """Run time (when statistics are on), run count and recursion misses."""
        return program_info(self._bpf.call("bpf_program__fd", self._program(program)))

    def _read_batch(self, function: str, *arguments: object) -> bool:
        try:
            self._bpf.call(function, *arguments)
        except LibbpfError as error:
            if error.errno != errno.ENOENT:
                raise
            return True
        return False

    def _attach_iterator(self, program: str, over: Optional[str]) -> int:
        options = None
        if over is not None:
            info = _MapIteratorInfo(self._map_fd(over))
            options = _IteratorOptions(
                ctypes.sizeof(_IteratorOptions), ctypes.addressof(info), ctypes.sizeof(info)
            )
        return self._bpf.pointer(
            "bpf_program__attach_iter",
            self._program(program),
            None if options is None else ctypes.addressof(options),
        )

    def _map(self, name: str) -> int:
        return self._found(self._maps_found, "bpf_object__find_map_by_name", name)

    def _map_fd(self, name: str) -> int:
        return self._bpf.call("bpf_map__fd", self._map(name))

    def _program(self, name: str) -> int:
        return self._found(self._programs_found, "bpf_object__find_program_by_name", name)

    def _found(self, known: Dict[str, int], function: str, name: str) -> int:
        if name not in known:
            known[name] = self._bpf.pointer(function, self._object, name.encode())
        return known[name]

    def _raw_btf(self) -> bytes:
        size = ctypes.c_uint32()
        handle = self._bpf.pointer("bpf_object__btf", self._object)
        return ctypes.string_at(
            self._bpf.pointer("btf__raw_data", handle, ctypes.byref(size)), size.value
        )
