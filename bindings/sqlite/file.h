/* An open database, journal or WAL. Internal. */

#ifndef VFSCALE_SQLITE_FILE_H
#define VFSCALE_SQLITE_FILE_H

#include "trees.h"

struct file {
    sqlite3_file base;
    struct tree *tree;
    int fd;
    /** Its path in the tree; SQLite keeps it until the file is closed. */
    const char *path;
    /** The SQLITE_OPEN_* flags with which it was opened. */
    int flags;
    /** The level of its lock: SQLITE_LOCK_*. */
    int level;
    /** Whether its name is durable. */
    int is_named;
    /** Whether the WAL stays when the database is closed, and writes disturb nothing beside. */
    int keeps_wal, is_powersafe;
    const char *vfs_name;
    struct shm *shm;
    /** The slots of the WAL index that it has locked, a bit each. */
    unsigned shared, exclusive;
};

extern const sqlite3_io_methods file_methods;

#endif
