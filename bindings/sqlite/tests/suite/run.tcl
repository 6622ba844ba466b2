# Runs a file of SQLite's own tests on databases in a tree: testfixture run.tcl FILE
#
# Files of the tests are in the tree as soon as SQLite is initialized (vfs.c, tcl.c).

sqlite3_initialize

# SQLite's own commands for bytes of files open files of the host.
proc hexio_read {name offset count} {
    set file [open $name rb]
    seek $file $offset
    set bytes [read $file $count]
    close $file
    return [string toupper [binary encode hex $bytes]]
}
proc hexio_write {name offset hex} {
    set file [open $name [expr {[file exists $name] ? "r+b" : "w+b"}]]
    seek $file $offset
    set bytes [binary decode hex $hex]
    puts -nonewline $file $bytes
    close $file
    return [string length $bytes]
}

# Enough to find out whether a file has changed.
proc md5file {name {offset 0} {count -1}} {
    set file [open $name rb]
    seek $file $offset
    set bytes [expr {$count < 0 ? [read $file] : [read $file $count]}]
    close $file
    return [zlib crc32 $bytes]
}

# Other processes have no part in a tree: without these tests, as under valgrind.
set G(valgrind) 1

set argv0 [lindex $argv 0]
set argv [lrange $argv 1 end]
source $argv0
