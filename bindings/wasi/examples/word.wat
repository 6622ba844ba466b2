;; Writes its first argument to a file that has it as its name.
(module
    (import "wasi_snapshot_preview1" "args_get" (func $args (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write"
        (func $write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "path_open"
        (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (func $check (param i32) local.get 0 if unreachable end)
    (func (export "_start") (local $end i32)
        (call $check (call $args (i32.const 64) (i32.const 1024)))
        (i32.store (i32.const 16) (i32.load (i32.const 68)))
        (local.set $end (i32.load (i32.const 68)))
        (loop $on
            (local.set $end (i32.add (local.get $end) (i32.const 1)))
            (br_if $on (i32.load8_u (local.get $end))))
        (i32.store (i32.const 20) (i32.sub (local.get $end) (i32.load (i32.const 16))))
        ;; In the first preopened directory; made, or truncated; for writing.
        (call $check (call $open (i32.const 3) (i32.const 0)
            (i32.load (i32.const 16)) (i32.load (i32.const 20))
            (i32.const 9) (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 8)))
        (call $check (call $write (i32.load (i32.const 8)) (i32.const 16) (i32.const 1)
            (i32.const 32)))))
