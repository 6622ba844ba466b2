/* Databases of SQLite in vfscale: see README.md. MIT or Apache-2.0, at your option. */

#ifndef VFSCALE_SQLITE_H
#define VFSCALE_SQLITE_H

#include <sqlite3.h>
#include <vfscale.h>

/**
 * Registers a VFS of SQLite, under `name`, for databases in images: their names are IMAGE:/PATH and
 * IMAGE:BRANCH:/PATH. An image is open from the first database in it to the last. Does nothing if
 * there is a VFS of this name. Returns a result code of SQLite.
 */
int vfscale_sqlite_register(const char *name);

/**
 * Registers a VFS of SQLite, under `name`, for databases that `task` finds by their paths: in
 * memory, in a volume, or in a branch. The task lives until vfscale_sqlite_unregister. Returns a
 * result code of SQLite.
 */
int vfscale_sqlite_register_task(const char *name, struct vfscale_task *task);

/** Ends a VFS, through which no database is open. Returns a result code of SQLite. */
int vfscale_sqlite_unregister(const char *name);

/**
 * Forks a branch of an image into the branch `child`; databases in it may be open in this process,
 * and a transaction that has not ended there is rolled back in the child. Returns a result code of
 * SQLite, and vfscale_error() has the text.
 */
int vfscale_sqlite_fork(const char *image, const char *parent, const char *child);

/** Adds the SQL function vfscale_fork(IMAGE, PARENT, CHILD) to a connection. */
int vfscale_sqlite_functions(sqlite3 *db);

#endif
