/* The VFS under SQLite's own tests: that of a task, with the counts and errors that the tests
 * expect of the system's VFS. SQLite calls suite_init at the end of each sqlite3_initialize.
 *
 * VFSCALE_SUITE_IMAGE is IMAGE or IMAGE:BRANCH; without it the tree is in memory. */

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../file.h"
#include "suite.h"

struct vfscale_task *suite_task;
char suite_folder[4112];

/* Variables that SQLite's tests set and read. */
extern int sqlite3_io_error_hit, sqlite3_io_error_hardhit, sqlite3_io_error_pending;
extern int sqlite3_io_error_persist, sqlite3_io_error_benign;
extern int sqlite3_diskfull_pending, sqlite3_diskfull;
extern int sqlite3_open_file_count, sqlite3_sync_count, sqlite3_fullsync_count;

static sqlite3_vfs inner, outer;
static sqlite3_io_methods methods;

/* Returns whether an I/O error is due now. */
static int fails(void) {
    if (!(sqlite3_io_error_persist && sqlite3_io_error_hit) && sqlite3_io_error_pending-- != 1)
        return 0;
    sqlite3_io_error_hit++;
    sqlite3_io_error_hardhit += !sqlite3_io_error_benign;
    return 1;
}

/* Returns whether the disk is to be full now. */
static int is_full(void) {
    if (sqlite3_diskfull_pending == 0)
        return 0;
    if (sqlite3_diskfull_pending > 1) {
        sqlite3_diskfull_pending--;
        return 0;
    }
    sqlite3_io_error_hit++;
    sqlite3_io_error_hardhit += !sqlite3_io_error_benign;
    sqlite3_diskfull = 1;
    sqlite3_io_error_hit = 1;
    return 1;
}

static int suite_close(sqlite3_file *file) {
    sqlite3_open_file_count--;
    return file_methods.xClose(file);
}

static int suite_read(sqlite3_file *file, void *buf, int count, sqlite3_int64 offset) {
    return fails() ? SQLITE_IOERR_READ : file_methods.xRead(file, buf, count, offset);
}

static int suite_write(sqlite3_file *file, const void *buf, int count, sqlite3_int64 offset) {
    if (fails())
        return SQLITE_IOERR_WRITE;
    return is_full() ? SQLITE_FULL : file_methods.xWrite(file, buf, count, offset);
}

static int suite_truncate(sqlite3_file *file, sqlite3_int64 size) {
    return fails() ? SQLITE_IOERR_TRUNCATE : file_methods.xTruncate(file, size);
}

static void count_sync(int flags) {
    sqlite3_sync_count++;
    sqlite3_fullsync_count += (flags & 0x0f) == SQLITE_SYNC_FULL;
}

static int suite_sync(sqlite3_file *file, int flags) {
    if (is_full())
        return SQLITE_FULL;
    count_sync(flags);
    return fails() ? SQLITE_IOERR_FSYNC : file_methods.xSync(file, flags);
}

static int suite_size(sqlite3_file *file, sqlite3_int64 *size) {
    return fails() ? SQLITE_IOERR_FSTAT : file_methods.xFileSize(file, size);
}

static int suite_is_reserved(sqlite3_file *file, int *is_reserved) {
    if (fails())
        return SQLITE_IOERR_CHECKRESERVEDLOCK;
    return file_methods.xCheckReservedLock(file, is_reserved);
}

static int suite_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
                      int *out_flags) {
    int result;

    (void)vfs;
    result = inner.xOpen(&inner, name, file, flags, out_flags);
    if (result == SQLITE_OK && file->pMethods == &file_methods) {
        file->pMethods = &methods;
        sqlite3_open_file_count++;
    }
    return result;
}

static int suite_delete(sqlite3_vfs *vfs, const char *name, int syncs) {
    int result;

    (void)vfs;
    if (fails())
        return SQLITE_IOERR_DELETE;
    result = inner.xDelete(&inner, name, syncs);
    if (result == SQLITE_OK && syncs)
        count_sync(0);
    return result;
}

static int suite_access(sqlite3_vfs *vfs, const char *name, int want, int *may) {
    (void)vfs;
    return fails() ? SQLITE_IOERR_ACCESS : inner.xAccess(&inner, name, want, may);
}

static int suite_full_path(sqlite3_vfs *vfs, const char *name, int size, char *full) {
    (void)vfs;
    return fails() ? SQLITE_ERROR : inner.xFullPathname(&inner, name, size, full);
}

static void must(int result, const char *what) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, vfscale_error());
        exit(1);
    }
}

/* Makes the tree, with the folder of the tests as its working directory, which is the task's. Some
 * tests expect that permissions bind it. */
static void make_task(void) {
    struct vfscale_credentials user = {.uid = 1000, .gid = 1000, .real_uid = 1000,
                                       .real_gid = 1000};
    const char *image = getenv("VFSCALE_SUITE_IMAGE"), *branch;
    struct vfscale_pool *pool;
    struct vfscale_fs *fs;
    char path[PATH_MAX];

    branch = image == NULL ? NULL : strchr(image, ':');
    if (image == NULL) {
        must(vfscale_fs_memory(NULL, 0, &fs), "memory");
    } else if (branch == NULL) {
        must(vfscale_fs_volume(image, NULL, 0, &fs), image);
    } else {
        snprintf(path, sizeof path, "%.*s", (int)(branch - image), image);
        must(vfscale_pool_new(path, NULL, 0, &pool), path);
        must(vfscale_pool_open(pool, branch + 1, NULL, 0, &fs), image);
    }
    must(vfscale_task_new(fs, NULL, 0, &suite_task), "a task");
    if (getcwd(path, sizeof path - 9) == NULL) {
        perror("getcwd");
        exit(1);
    }
    snprintf(suite_folder, sizeof suite_folder, "%s/testdir", path);
    vfscale_remove_all(suite_task, suite_folder);
    must(vfscale_mkdir_all(suite_task, suite_folder, 0755), suite_folder);
    must(vfscale_chown(suite_task, suite_folder, 1000, 1000), suite_folder);
    must(vfscale_set_credentials(suite_task, &user, sizeof user), "credentials");
    must(vfscale_chdir(suite_task, suite_folder), suite_folder);
}

int suite_init(const char *unused);

int suite_init(const char *unused) {
    (void)unused;
    if (suite_task == NULL) {
        make_task();
        if (vfscale_sqlite_register_task("vfscale", suite_task) != SQLITE_OK)
            return SQLITE_ERROR;
        inner = outer = *sqlite3_vfs_find("vfscale");
        outer.zName = "suite";
        outer.pNext = NULL;
        outer.xOpen = suite_open;
        outer.xDelete = suite_delete;
        outer.xAccess = suite_access;
        outer.xFullPathname = suite_full_path;
        methods = file_methods;
        methods.xClose = suite_close;
        methods.xRead = suite_read;
        methods.xWrite = suite_write;
        methods.xTruncate = suite_truncate;
        methods.xSync = suite_sync;
        methods.xFileSize = suite_size;
        methods.xCheckReservedLock = suite_is_reserved;
        suite_register_tcl();
    }
    return sqlite3_vfs_register(&outer, 1);
}
