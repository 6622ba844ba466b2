/* Power cuts under databases of SQLite.
 *
 *   crash image IMAGE [BRANCH]                  makes an empty image
 *   crash record TRACE MODE SYNCHRONOUS         commits in memory, and records the calls of the VFS
 *   crash check MODE SYNCHRONOUS [BRANCH]       judges images of which standard input has a line
 *                                               each: IMAGE MARKS ...
 *
 * The program `replay` of the crash tests makes the images of the trace, and says how many commits
 * had returned before each cut. Each transaction changes two databases, by the rules for several
 * databases of SQLite: in the modes with a journal both have it or none of them.
 *
 * With VFSCALE_CRASH_FAULT=sync the trace has no syncs, as of a VFS that forgets them. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vfscale_sqlite.h"

#define COMMITS 14

static FILE *trace;
static int is_forgetful;

/* The calls of the VFS come here by --wrap of the linker. */

int __real_vfscale_open(struct vfscale_task *, const char *, int, mode_t);
ssize_t __real_vfscale_pwrite(struct vfscale_task *, int, const void *, size_t, int64_t);
int __real_vfscale_ftruncate(struct vfscale_task *, int, int64_t);
int __real_vfscale_fsync(struct vfscale_task *, int);
int __real_vfscale_fdatasync(struct vfscale_task *, int);
int __real_vfscale_unlink(struct vfscale_task *, const char *);
int __real_vfscale_close(struct vfscale_task *, int);

int __wrap_vfscale_open(struct vfscale_task *task, const char *path, int flags, mode_t mode) {
    int fd = __real_vfscale_open(task, path, flags, mode);
    if (trace != NULL && fd >= 0)
        fprintf(trace, "open %d %d %d %s\n", fd, flags, (int)mode, path);
    return fd;
}

ssize_t __wrap_vfscale_pwrite(struct vfscale_task *task, int fd, const void *buf, size_t size,
                              int64_t offset) {
    ssize_t put = __real_vfscale_pwrite(task, fd, buf, size, offset);
    if (trace != NULL && put >= 0) {
        fprintf(trace, "write %d %lld %zd\n", fd, (long long)offset, put);
        fwrite(buf, 1, (size_t)put, trace);
    }
    return put;
}

static int noted(int result, const char *call, int fd) {
    if (trace != NULL && result == 0)
        fprintf(trace, "%s %d\n", call, fd);
    return result;
}

int __wrap_vfscale_ftruncate(struct vfscale_task *task, int fd, int64_t size) {
    int result = __real_vfscale_ftruncate(task, fd, size);
    if (trace != NULL && result == 0)
        fprintf(trace, "truncate %d %lld\n", fd, (long long)size);
    return result;
}

int __wrap_vfscale_fsync(struct vfscale_task *task, int fd) {
    int result = __real_vfscale_fsync(task, fd);
    return is_forgetful ? result : noted(result, "sync", fd);
}

int __wrap_vfscale_fdatasync(struct vfscale_task *task, int fd) {
    int result = __real_vfscale_fdatasync(task, fd);
    return is_forgetful ? result : noted(result, "datasync", fd);
}

int __wrap_vfscale_unlink(struct vfscale_task *task, const char *path) {
    int result = __real_vfscale_unlink(task, path);
    if (trace != NULL && result == 0)
        fprintf(trace, "unlink %s\n", path);
    return result;
}

int __wrap_vfscale_close(struct vfscale_task *task, int fd) {
    return noted(__real_vfscale_close(task, fd), "close", fd);
}

static void must(int is_right, const char *what, const char *more) {
    if (!is_right) {
        fprintf(stderr, "%s: %s (%s)\n", what, more, vfscale_error());
        exit(1);
    }
}

static void run(sqlite3 *db, const char *sql) {
    int result = sqlite3_exec(db, sql, NULL, NULL, NULL);
    must(result == SQLITE_OK, sql, sqlite3_errmsg(db));
}

/* Returns the number that a query has as its only value, or -1 without a row or the table. */
static sqlite3_int64 number(sqlite3 *db, const char *sql) {
    sqlite3_stmt *query = NULL;
    sqlite3_int64 found = -1;
    int result = sqlite3_prepare_v2(db, sql, -1, &query, NULL);

    if (result == SQLITE_OK && (result = sqlite3_step(query)) == SQLITE_ROW)
        found = sqlite3_column_int64(query, 0);
    sqlite3_finalize(query);
    if (result != SQLITE_ROW && result != SQLITE_DONE && result != SQLITE_ERROR)
        return -2;
    return found;
}

/* Returns whether a check of a database says that it is well. */
static int is_ok(sqlite3 *db, const char *sql) {
    sqlite3_stmt *query = NULL;
    int ok = sqlite3_prepare_v2(db, sql, -1, &query, NULL) == SQLITE_OK &&
             sqlite3_step(query) == SQLITE_ROW &&
             strcmp((const char *)sqlite3_column_text(query, 0), "ok") == 0;
    sqlite3_finalize(query);
    return ok;
}

static int image(const char *path, const char *branch) {
    struct vfscale_volume_options options = {.create_size = 32 << 20};
    struct vfscale_pool_options convert = {.flags = VFSCALE_POOL_CONVERT};
    struct vfscale_pool *pool;
    struct vfscale_fs *fs;

    must(vfscale_fs_volume(path, &options, sizeof options, &fs) == 0, path, "not made");
    must(vfscale_fs_close(fs) == 0, path, "not closed");
    if (branch != NULL) {
        must(vfscale_pool_new(path, &convert, sizeof convert, &pool) == 0, path, "no branches");
        if (strcmp(branch, "main") != 0)
            must(vfscale_pool_fork(pool, "main", branch, 0) == 0, path, "no branch");
        must(vfscale_pool_close(pool) == 0, path, "not closed");
    }
    return 0;
}

/* Both databases have rows, and in the same transaction the number of commits, and a sum of
 * the rows. */
static void make(sqlite3 *db, const char *schema, const char *mode, const char *synchronous) {
    char sql[400];
    snprintf(sql, sizeof sql,
             "PRAGMA %s.journal_mode = %s; PRAGMA %s.synchronous = %s; PRAGMA %s.cache_size = 5;"
             "CREATE TABLE %s.t (v INTEGER PRIMARY KEY, b BLOB);"
             "CREATE TABLE %s.done (commits INT, sum INT); INSERT INTO %s.done VALUES (0, 0)",
             schema, mode, schema, synchronous, schema, schema, schema, schema);
    run(db, sql);
}

static void change(sqlite3 *db, const char *schema, int turn) {
    char sql[700];
    snprintf(sql, sizeof sql,
             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)"
             " INSERT INTO %s.t SELECT %d + i, randomblob(300 + 97 * i) FROM n;"
             "UPDATE %s.t SET b = randomblob(length(b) + 11) WHERE v %% 7 = %d;"
             "DELETE FROM %s.t WHERE v %% 13 = %d AND %d %% 3 = 0;"
             "UPDATE %s.done SET commits = %d,"
             " sum = (SELECT total(length(b) * v + unicode(hex(b))) FROM %s.t)",
             5 + turn % 4 * 12, schema, turn * 100, schema, turn % 7, schema, turn % 13, turn,
             schema, turn, schema);
    run(db, sql);
}

static int record(const char *path, const char *mode, const char *synchronous) {
    struct vfscale_fs *fs;
    struct vfscale_task *task;
    sqlite3 *db;
    int turn;

    must(vfscale_fs_memory(NULL, 0, &fs) == 0, "memory", "not made");
    must(vfscale_task_new(fs, NULL, 0, &task) == 0, "memory", "no task");
    must(vfscale_sqlite_register_task("recorded", task) == SQLITE_OK, "memory", "no VFS");
    must((trace = fopen(path, "w")) != NULL, path, "not made");
    must(sqlite3_open_v2("/a.db", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, "recorded") ==
             SQLITE_OK, "/a.db", sqlite3_errmsg(db));
    run(db, "ATTACH '/b.db' AS b");
    make(db, "main", mode, synchronous);
    make(db, "b", mode, synchronous);
    fprintf(trace, "mark\n");
    for (turn = 1; turn <= COMMITS; turn++) {
        run(db, "BEGIN");
        change(db, "main", turn);
        change(db, "b", turn);
        run(db, "COMMIT");
        fprintf(trace, "mark\n");
        if (turn == COMMITS / 2)
            run(db, strcmp(mode, "WAL") == 0 ? "PRAGMA wal_checkpoint(TRUNCATE)" : "VACUUM");
    }
    must(fclose(trace) == 0, path, "not written");
    trace = NULL;
    sqlite3_close(db);
    return 0;
}

/* Returns what is wrong with a database, of whose commits `marks - 1` have returned, or NULL. */
static const char *judge(sqlite3 *db, const char *schema, int marks, int is_durable,
                         sqlite3_int64 *commits) {
    char sql[200];
    sqlite3_int64 sum, found;

    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s.sqlite_schema", schema);
    if (number(db, sql) < 0)
        return "it can't be read";
    snprintf(sql, sizeof sql, "PRAGMA %s.integrity_check", schema);
    if (!is_ok(db, sql))
        return "it is damaged";
    snprintf(sql, sizeof sql, "SELECT commits FROM %s.done", schema);
    *commits = number(db, sql);
    /* Without the syncs of FULL the last commit may be undone, and no other one. */
    if (*commits < marks - 1 - !is_durable)
        return "a commit is lost";
    if (*commits > marks)
        return "it has a commit that had not begun";
    if (*commits < 0)
        return NULL;
    snprintf(sql, sizeof sql, "SELECT sum FROM %s.done", schema);
    sum = number(db, sql);
    snprintf(sql, sizeof sql, "SELECT total(length(b) * v + unicode(hex(b))) FROM %s.t", schema);
    found = number(db, sql);
    return sum == found ? NULL : "the rows are not those of the commit";
}

static const char *look(const char *image, const char *branch, int marks, int is_wal,
                        int is_durable) {
    char name[4300], sql[4400];
    const char *wrong;
    sqlite3_int64 a = -1, b = -1;
    sqlite3 *db = NULL;

    snprintf(name, sizeof name, "%s%s%s:/a.db", image, branch ? ":" : "", branch ? branch : "");
    if (sqlite3_open_v2(name, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, "vfscale") !=
        SQLITE_OK) {
        sqlite3_close(db);
        return "it can't be opened";
    }
    name[strlen(name) - 4] = 'b';
    snprintf(sql, sizeof sql, "ATTACH '%s' AS b", name);
    run(db, sql);
    wrong = judge(db, "main", marks, is_durable, &a);
    if (wrong == NULL)
        wrong = judge(db, "b", marks, is_durable, &b);
    /* Transactions in several WALs are each whole, but not together. The tables were made in one
     * database after the other, and without the syncs of FULL the second one may lack them. */
    if (wrong == NULL && !is_wal && marks > !is_durable && a != b)
        wrong = "one database has a commit that the other lacks";
    sqlite3_close(db);
    return wrong;
}

static int check(const char *mode, const char *synchronous, const char *branch) {
    /* A commit that is the removal of a name is durable with EXTRA. */
    int is_durable = strcmp(mode, "DELETE") != 0 || strcmp(synchronous, "EXTRA") == 0;
    int states = 0, failed = 0, marks;
    char line[4400], image[4200], id[100];

    must(vfscale_sqlite_register("vfscale") == SQLITE_OK, "the VFS", "not registered");
    while (fgets(line, sizeof line, stdin) != NULL) {
        const char *wrong;
        must(sscanf(line, "%4199s %d %99s", image, &marks, id) == 3, line, "no state");
        wrong = look(image, branch, marks, strcmp(mode, "WAL") == 0, is_durable);
        states++;
        if (wrong != NULL && failed++ < 5)
            printf("state %s, %d marks: %s (%s)\n", id, marks, wrong, vfscale_error());
    }
    printf("%d states, %d wrong\n", states, failed);
    return states == 0 || failed > 0;
}

int main(int argc, char **argv) {
    const char *fault = getenv("VFSCALE_CRASH_FAULT");

    is_forgetful = fault != NULL && strcmp(fault, "sync") == 0;
    if (argc > 2 && strcmp(argv[1], "image") == 0)
        return image(argv[2], argc > 3 ? argv[3] : NULL);
    if (argc > 4 && strcmp(argv[1], "record") == 0)
        return record(argv[2], argv[3], argv[4]);
    if (argc > 3 && strcmp(argv[1], "check") == 0)
        return check(argv[2], argv[3], argc > 4 ? argv[4] : NULL);
    fprintf(stderr, "crash image|record|check ...\n");
    return 2;
}
