/* Tests of databases of SQLite in vfscale: `databases FOLDER`. */

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vfscale_sqlite.h"

static int passed, failed;
static const char *folder;

static void check(int is_right, const char *what, const char *more) {
    if (is_right) {
        passed++;
    } else {
        failed++;
        printf("not ok %s: %s (%s)\n", what, more, vfscale_error());
    }
}

static sqlite3 *open_db(const char *name, const char *vfs) {
    sqlite3 *db = NULL;
    int result = sqlite3_open_v2(name, &db,
                                 SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX,
                                 vfs);
    check(result == SQLITE_OK, name, sqlite3_errmsg(db));
    return db;
}

static int run(sqlite3 *db, const char *sql) { return sqlite3_exec(db, sql, NULL, NULL, NULL); }

static void must(sqlite3 *db, const char *sql) {
    int result = run(db, sql);
    check(result == SQLITE_OK, sql, sqlite3_errmsg(db));
}

/* Returns the rows of a query as text, which the caller frees. */
static char *rows(sqlite3 *db, const char *sql) {
    sqlite3_stmt *query = NULL;
    sqlite3_str *text = sqlite3_str_new(db);
    int column, result = sqlite3_prepare_v2(db, sql, -1, &query, NULL);

    while (result == SQLITE_OK || result == SQLITE_ROW) {
        result = sqlite3_step(query);
        for (column = 0; result == SQLITE_ROW && column < sqlite3_column_count(query); column++)
            sqlite3_str_appendf(text, "%s|", sqlite3_column_text(query, column));
    }
    if (result != SQLITE_DONE)
        sqlite3_str_appendf(text, "error: %s", sqlite3_errmsg(db));
    sqlite3_finalize(query);
    return sqlite3_str_finish(text);
}

static void expect(sqlite3 *db, const char *sql, const char *wanted) {
    char *found = rows(db, sql);
    check(found != NULL && strcmp(found, wanted) == 0, sql, found ? found : "nothing");
    sqlite3_free(found);
}

static unsigned seed = 7;

static unsigned below(unsigned bound) {
    seed = seed * 1103515245u + 12345u;
    return (seed >> 16) % bound;
}

/* Makes the same random changes in two databases, the second of which is the system's. */
static void same_changes(sqlite3 *ours, sqlite3 *theirs, int count) {
    char sql[300];
    int turn, is_open = 0;

    for (turn = 0; turn < count; turn++) {
        unsigned id = below(400), kind = below(12);
        if (kind < 5)
            snprintf(sql, sizeof sql, "INSERT OR REPLACE INTO t VALUES (%u, %u, zeroblob(%u))",
                     id, below(1000), below(9000));
        else if (kind < 7)
            snprintf(sql, sizeof sql, "DELETE FROM t WHERE id BETWEEN %u AND %u", id,
                     id + below(9));
        else if (kind < 9)
            snprintf(sql, sizeof sql, "UPDATE t SET v = v + 1, b = zeroblob(0) WHERE id > %u", id);
        else if (kind == 9 && !is_open)
            snprintf(sql, sizeof sql, "VACUUM");
        else if (kind == 10 && is_open)
            snprintf(sql, sizeof sql, "ROLLBACK");
        else
            snprintf(sql, sizeof sql, is_open ? "COMMIT" : "BEGIN");
        is_open = kind > 9 || (kind == 9 && is_open) ? !is_open : is_open;
        check(run(ours, sql) == run(theirs, sql), sql, sqlite3_errmsg(ours));
    }
    if (is_open) {
        must(ours, "COMMIT");
        must(theirs, "COMMIT");
    }
}

/* Each journal mode: the same results as of the system's files, and nothing that a check finds. */
static void modes(const char *vfs, const char *prefix) {
    const char *modes[] = {"DELETE", "TRUNCATE", "PERSIST", "MEMORY", "WAL"};
    const char *table = "CREATE TABLE t (id INTEGER PRIMARY KEY, v INT, b BLOB);"
                        "CREATE INDEX i ON t (v)";
    static int made;
    unsigned mode;

    for (mode = 0; mode < sizeof modes / sizeof *modes; mode++) {
        char name[4300], theirs_name[4300], sql[100], *left, *right;
        sqlite3 *ours, *theirs;
        snprintf(name, sizeof name, "%s/%s.db", prefix, modes[mode]);
        snprintf(theirs_name, sizeof theirs_name, "%s/%d.db", folder, made++);
        ours = open_db(name, vfs);
        theirs = open_db(theirs_name, NULL);
        must(theirs, "PRAGMA synchronous = OFF");
        snprintf(sql, sizeof sql, "PRAGMA journal_mode = %s", modes[mode]);
        left = rows(ours, sql);
        right = rows(theirs, sql);
        check(strcmp(left, right) == 0, sql, left);
        sqlite3_free(left);
        sqlite3_free(right);
        must(ours, table);
        must(theirs, table);
        same_changes(ours, theirs, 400);
        sqlite3_close(ours);
        ours = open_db(name, vfs);
        expect(ours, "PRAGMA integrity_check", "ok|");
        left = rows(ours, "SELECT id, v, length(b) FROM t ORDER BY id");
        right = rows(theirs, "SELECT id, v, length(b) FROM t ORDER BY id");
        check(strcmp(left, right) == 0, name, "other rows than in a file");
        sqlite3_free(left);
        sqlite3_free(right);
        sqlite3_close(ours);
        sqlite3_close(theirs);
    }
}

/* Two connections and the levels of their locks. */
static void locks(const char *vfs, const char *name) {
    sqlite3 *a = open_db(name, vfs), *b = open_db(name, vfs);

    must(a, "CREATE TABLE t (v)");
    must(a, "BEGIN IMMEDIATE");
    check(run(b, "BEGIN IMMEDIATE") == SQLITE_BUSY, "a second writer", sqlite3_errmsg(b));
    expect(b, "SELECT count(*) FROM t", "0|");
    must(a, "INSERT INTO t VALUES (1)");
    must(b, "BEGIN");
    expect(b, "SELECT count(*) FROM t", "0|");
    check(run(a, "COMMIT") == SQLITE_BUSY, "a commit beside a reader", sqlite3_errmsg(a));
    check(run(b, "BEGIN EXCLUSIVE") != SQLITE_OK, "a reader that would write", sqlite3_errmsg(b));
    must(b, "COMMIT");
    must(a, "COMMIT");
    expect(b, "SELECT count(*) FROM t", "1|");
    must(b, "BEGIN EXCLUSIVE");
    check(run(a, "SELECT * FROM t") == SQLITE_BUSY, "a reader beside an exclusive lock",
          sqlite3_errmsg(a));
    must(b, "COMMIT");
    /* In a WAL readers keep their state beside a writer. */
    expect(a, "PRAGMA journal_mode = WAL", "wal|");
    must(b, "BEGIN");
    expect(b, "SELECT count(*) FROM t", "1|");
    must(a, "INSERT INTO t VALUES (2)");
    expect(b, "SELECT count(*) FROM t", "1|");
    must(b, "COMMIT");
    expect(b, "SELECT count(*) FROM t", "2|");
    sqlite3_close(a);
    sqlite3_close(b);
}

struct job {
    const char *vfs, *name;
    int number;
};

static void *insert_many(void *arg) {
    struct job *job = arg;
    sqlite3 *db = open_db(job->name, job->vfs);
    char sql[100];
    int turn;

    sqlite3_busy_timeout(db, 60000);
    for (turn = 0; turn < 200; turn++) {
        snprintf(sql, sizeof sql, "INSERT INTO t VALUES (%d)", job->number * 1000 + turn);
        must(db, sql);
    }
    sqlite3_close(db);
    return NULL;
}

static void threads(const char *vfs, const char *name, const char *mode) {
    pthread_t ids[4];
    struct job jobs[4];
    sqlite3 *db = open_db(name, vfs);
    char *text = rows(db, mode);
    int i;

    sqlite3_free(text);
    must(db, "CREATE TABLE t (v UNIQUE)");
    for (i = 0; i < 4; i++) {
        jobs[i] = (struct job){vfs, name, i};
        pthread_create(&ids[i], NULL, insert_many, &jobs[i]);
    }
    for (i = 0; i < 4; i++)
        pthread_join(ids[i], NULL);
    expect(db, "SELECT count(*) FROM t", "800|");
    expect(db, "PRAGMA integrity_check", "ok|");
    sqlite3_close(db);
}

/* Commits until it is killed, and writes a byte for each commit. */
static int commit(const char *name, const char *mode) {
    sqlite3 *db = open_db(name, "vfscale");

    run(db, mode);
    run(db, "PRAGMA synchronous = EXTRA; CREATE TABLE IF NOT EXISTS t (v INTEGER PRIMARY KEY, b)");
    for (;;) {
        run(db, "BEGIN");
        run(db, "INSERT INTO t SELECT coalesce(max(v), 0) + 1, randomblob(3000) FROM t");
        run(db, "UPDATE t SET b = randomblob(2000) WHERE v % 7 = 0");
        if (run(db, "COMMIT") != SQLITE_OK || write(STDOUT_FILENO, "x", 1) != 1)
            return 1;
    }
}

/* Waits until an image can be opened: Linux ends the I/O of a killed process a little after it. */
static void await_image(const char *name) {
    int tries, is_open = 0;

    for (tries = 0; !is_open && tries < 500; tries++) {
        sqlite3 *db = NULL;

        is_open = sqlite3_open_v2(name, &db, SQLITE_OPEN_READWRITE, "vfscale") == SQLITE_OK;
        sqlite3_close(db);
        if (!is_open)
            usleep(10000);
    }
}

/* A process that is killed while it commits: what it was told to be committed is there. */
static void kills(const char *name, const char *mode) {
    int round;

    for (round = 0; round < 8; round++) {
        int fds[2], committed = 0, next;
        char sql[100];
        sqlite3 *db;
        pid_t child;

        if (pipe(fds) < 0 || (child = fork()) < 0) {
            check(0, "fork", "failed");
            return;
        }
        if (child == 0) {
            dup2(fds[1], STDOUT_FILENO);
            execl("/proc/self/exe", "databases", folder, name, mode, NULL);
            _exit(127);
        }
        close(fds[1]);
        for (next = 0; next < 3 + round * 5 && read(fds[0], sql, 1) == 1; next++)
            committed++;
        kill(child, SIGKILL);
        while (read(fds[0], sql, 1) == 1)
            committed++;
        waitpid(child, NULL, 0);
        close(fds[0]);
        check(committed > 0, name, "the child committed nothing");
        await_image(name);
        db = open_db(name, "vfscale");
        expect(db, "PRAGMA integrity_check", "ok|");
        snprintf(sql, sizeof sql, "SELECT count(*) >= %d FROM t", committed);
        expect(db, sql, "1|");
        must(db, "DELETE FROM t");
        sqlite3_close(db);
    }
}

/* A branch gets the database of its parent as it is at the fork, without what is not committed. */
static void branches(const char *image) {
    char name[4300], sql[4400];
    sqlite3 *ours, *trial;

    snprintf(name, sizeof name, "%s:/app.db", image);
    ours = open_db(name, "vfscale");
    check(vfscale_sqlite_functions(ours) == SQLITE_OK, "the function", sqlite3_errmsg(ours));
    must(ours, "CREATE TABLE t (v); INSERT INTO t VALUES (1)");
    must(ours, "BEGIN; INSERT INTO t VALUES (2)");
    snprintf(sql, sizeof sql, "SELECT vfscale_fork('%s', 'main', 'trial')", image);
    expect(ours, sql, "trial|");
    must(ours, "COMMIT");
    snprintf(name, sizeof name, "%s:trial:/app.db", image);
    trial = open_db(name, "vfscale");
    expect(trial, "SELECT count(*) FROM t", "1|");
    must(trial, "INSERT INTO t VALUES (3), (4)");
    expect(ours, "SELECT group_concat(v) FROM t", "1,2|");
    expect(trial, "SELECT group_concat(v) FROM t", "1,3,4|");
    snprintf(sql, sizeof sql, "SELECT vfscale_fork('%s', 'main', 'trial')", image);
    check(run(ours, sql) == SQLITE_ERROR, "a fork to a name that is there", sqlite3_errmsg(ours));
    sqlite3_close(trial);
    sqlite3_close(ours);
}

static void refused(void) {
    const char *names[] = {"/app.db", "nowhere.vfs:/app.db", "no place"};
    unsigned i;

    for (i = 0; i < sizeof names / sizeof *names; i++) {
        sqlite3 *db = NULL;
        int result = sqlite3_open_v2(names[i], &db, SQLITE_OPEN_READWRITE, "vfscale");
        check(result == SQLITE_CANTOPEN, names[i], sqlite3_errmsg(db));
        sqlite3_close(db);
    }
    check(vfscale_sqlite_unregister("unix") == SQLITE_NOTFOUND, "a foreign VFS", "unregistered");
}

static int has_mode(struct vfscale_task *task, const char *path, uint32_t mode) {
    struct vfscale_stat st;
    return vfscale_stat(task, path, &st) == 0 && (st.st_mode & 0777) == mode;
}

/* A database has its journal beside itself, by whichever name it is opened: else another one that
 * opens it by its own name would not roll back. */
static void names(struct vfscale_task *task) {
    sqlite3 *db;

    check(vfscale_mkdir_all(task, "/names/real", 0755) == 0, "mkdir_all", "failed");
    check(vfscale_symlink(task, "real", "/names/dir") == 0, "symlink", "failed");
    check(vfscale_symlink(task, "dir/../dir/a.db", "/names/link.db") == 0, "symlink", "failed");
    check(vfscale_symlink(task, "loop.db", "/names/loop.db") == 0, "symlink", "failed");
    check(vfscale_chdir(task, "/names") == 0, "chdir", "failed");
    db = open_db("link.db", "memory");
    must(db, "CREATE TABLE t (v); BEGIN; INSERT INTO t VALUES (1)");
    check(has_mode(task, "/names/real/a.db-journal", 0644), "a link", "the journal is elsewhere");
    must(db, "COMMIT");
    sqlite3_close(db);
    check(sqlite3_open_v2("./link.db", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW,
                          "memory") == SQLITE_CANTOPEN, "a link that is forbidden", "opened");
    sqlite3_close(db);
    check(sqlite3_open_v2("real/a.db", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW,
                          "memory") == SQLITE_OK, "no link", sqlite3_errmsg(db));
    sqlite3_close(db);
    check(sqlite3_open_v2("loop.db", &db, SQLITE_OPEN_READWRITE, "memory") == SQLITE_CANTOPEN,
          "a link to itself", "opened");
    sqlite3_close(db);
    check(vfscale_chdir(task, "/") == 0, "chdir", "failed");
}

/* A journal or WAL is closed to everybody who may not read its database. */
static void permissions(struct vfscale_task *task) {
    sqlite3 *db = open_db("/secret.db", "memory");

    must(db, "CREATE TABLE t (v)");
    check(vfscale_chmod(task, "/secret.db", 0600) == 0, "chmod", "failed");
    must(db, "BEGIN; INSERT INTO t VALUES (1)");
    check(has_mode(task, "/secret.db-journal", 0600), "a journal", "has another mode");
    must(db, "COMMIT; PRAGMA journal_mode = WAL; INSERT INTO t VALUES (1)");
    check(has_mode(task, "/secret.db-wal", 0600), "a WAL", "has another mode");
    sqlite3_close(db);
}

static void controls(struct vfscale_task *task) {
    struct vfscale_stat st;
    sqlite3 *db = open_db("/controls.db", "memory");
    int keeps = 1, result;

    must(db, "PRAGMA journal_mode = WAL; CREATE TABLE t (v)");
    result = sqlite3_file_control(db, "main", SQLITE_FCNTL_PERSIST_WAL, &keeps);
    check(result == SQLITE_OK, "SQLITE_FCNTL_PERSIST_WAL", sqlite3_errmsg(db));
    sqlite3_close(db);
    check(vfscale_stat(task, "/controls.db-wal", &st) == 0, "a WAL that is kept", "is not there");
    db = open_db("/controls.db", "memory");
    must(db, "PRAGMA journal_mode = DELETE; INSERT INTO t VALUES (1)");
    check(vfscale_rename(task, "/controls.db", "/moved.db") == 0, "rename", "failed");
    check(run(db, "INSERT INTO t VALUES (2)") == SQLITE_READONLY, "a database that was moved",
          sqlite3_errmsg(db));
    sqlite3_close(db);
}

static void in_memory(void) {
    struct vfscale_fs *fs;
    struct vfscale_task *task;

    check(vfscale_fs_memory(NULL, 0, &fs) == 0, "memory", "not made");
    check(vfscale_task_new(fs, NULL, 0, &task) == 0, "memory", "no task");
    check(vfscale_sqlite_register_task("memory", task) == SQLITE_OK, "memory", "not registered");
    modes("memory", "");
    locks("memory", "/locks.db");
    threads("memory", "/wal.db", "PRAGMA journal_mode = WAL");
    threads("memory", "/delete.db", "PRAGMA journal_mode = DELETE");
    names(task);
    permissions(task);
    controls(task);
    check(vfscale_sqlite_unregister("memory") == SQLITE_OK, "memory", "not unregistered");
    vfscale_task_free(task);
    check(vfscale_fs_close(fs) == 0, "memory", "something is open");
}

/* Also the first database of an image may be opened by a link. */
static void linked(const char *image) {
    char name[4300];
    sqlite3 *by_link, *by_name;

    snprintf(name, sizeof name, "%s:/link.db", image);
    by_link = open_db(name, "vfscale");
    must(by_link, "CREATE TABLE t (v); BEGIN EXCLUSIVE; INSERT INTO t VALUES (1)");
    snprintf(name, sizeof name, "%s:/linked.db", image);
    by_name = open_db(name, "vfscale");
    check(strcmp(sqlite3_filename_journal(sqlite3_db_filename(by_link, "main")),
                 sqlite3_filename_journal(sqlite3_db_filename(by_name, "main"))) == 0,
          "a link", "has a journal of its own");
    must(by_link, "COMMIT");
    expect(by_name, "SELECT count(*) FROM t", "1|");
    sqlite3_close(by_link);
    sqlite3_close(by_name);
}

static void in_images(void) {
    struct vfscale_volume_options options = {.create_size = 256 << 20};
    struct vfscale_pool_options convert = {.flags = VFSCALE_POOL_CONVERT};
    struct vfscale_pool *pool;
    struct vfscale_task *task;
    struct vfscale_fs *fs;
    char image[4096], name[4300];
    int has_branches;

    for (has_branches = 0; has_branches < 2; has_branches++) {
        snprintf(image, sizeof image, "%s/%d.vfs", folder, has_branches);
        check(vfscale_fs_volume(image, &options, sizeof options, &fs) == 0, image, "not made");
        check(vfscale_task_new(fs, NULL, 0, &task) == 0, image, "no task");
        check(vfscale_symlink(task, "linked.db", "/link.db") == 0, image, "no link");
        vfscale_task_free(task);
        check(vfscale_fs_close(fs) == 0, image, "not closed");
        if (has_branches) {
            check(vfscale_pool_new(image, &convert, sizeof convert, &pool) == 0, image, "no pool");
            check(vfscale_pool_close(pool) == 0, image, "not closed");
        }
        linked(image);
        snprintf(name, sizeof name, "%s:", image);
        modes("vfscale", name);
        snprintf(name, sizeof name, "%s:/locks.db", image);
        locks("vfscale", name);
        snprintf(name, sizeof name, "%s:/threads.db", image);
        threads("vfscale", name, "PRAGMA journal_mode = WAL");
        snprintf(name, sizeof name, "%s:/killed.db", image);
        kills(name, "PRAGMA journal_mode = DELETE");
        snprintf(name, sizeof name, "%s:/killed-wal.db", image);
        kills(name, "PRAGMA journal_mode = WAL");
    }
    branches(image);
}

int main(int argc, char **argv) {
    folder = argc > 1 ? argv[1] : ".";
    check(vfscale_sqlite_register("vfscale") == SQLITE_OK, "the VFS", "not registered");
    if (argc > 3)
        return commit(argv[2], argv[3]);
    refused();
    in_images();
    in_memory();
    printf("%d checks, %d wrong\n", passed + failed, failed);
    return failed > 0;
}
