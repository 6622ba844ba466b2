/* Measures databases of SQLite beside each other:
 *
 *   bench places ROUNDS NAME=PLACE...     a table of medians and ranges, for README
 *   bench fork IMAGE COUNT                the time of a fork of 100 MiB with an open connection
 *
 * PLACE is `memory`, the folder of a file system of the host, or vfscale:IMAGE[:BRANCH]. Each round
 * measures all places in turn, beginning with another one. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "vfscale_sqlite.h"

#define PLACES_MAX 8
#define ROUNDS_MAX 99
#define ROWS 100000
/** Seconds of a measurement of transactions or reads. */
#define SLICE 0.3

struct place {
    const char *name, *vfs;
    char prefix[4400];
};

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s (%s)\n", what, why, vfscale_error());
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static sqlite3 *open_db(const struct place *place, const char *name) {
    char path[4600];
    sqlite3 *db;

    snprintf(path, sizeof path, "%s/%s", place->prefix, name);
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, place->vfs) !=
        SQLITE_OK)
        fail(path, sqlite3_errmsg(db));
    return db;
}

static void run(sqlite3 *db, const char *sql) {
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail(sql, sqlite3_errmsg(db));
}

static sqlite3_stmt *prepare(sqlite3 *db, const char *sql) {
    sqlite3_stmt *query;
    if (sqlite3_prepare_v2(db, sql, -1, &query, NULL) != SQLITE_OK)
        fail(sql, sqlite3_errmsg(db));
    return query;
}

/* Makes the same transaction until the slice is over, and returns the rate in a second. */
static double transactions(const struct place *place, const char *modes) {
    sqlite3 *db = open_db(place, "insert.db");
    sqlite3_stmt *insert;
    double begun, took;
    int done = 0;

    run(db, modes);
    run(db, "DROP TABLE IF EXISTS t; CREATE TABLE t (id INTEGER PRIMARY KEY, b BLOB)");
    insert = prepare(db, "INSERT INTO t (b) VALUES (zeroblob(100))");
    begun = now();
    do {
        if (sqlite3_step(insert) != SQLITE_DONE)
            fail("INSERT", sqlite3_errmsg(db));
        sqlite3_reset(insert);
        done++;
    } while ((took = now() - begun) < SLICE);
    sqlite3_finalize(insert);
    run(db, "PRAGMA journal_mode = DELETE");
    sqlite3_close(db);
    return done / took;
}

static double wal_full(const struct place *place) {
    return transactions(place, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL");
}

static double delete_full(const struct place *place) {
    return transactions(place, "PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL");
}

static double wal_off(const struct place *place) {
    return transactions(place, "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF");
}

static double delete_off(const struct place *place) {
    return transactions(place, "PRAGMA journal_mode = DELETE; PRAGMA synchronous = OFF");
}

/* Reads rows by their keys in a random order, through the usual cache of 2 MB. */
static double point_reads(const struct place *place) {
    sqlite3 *db = open_db(place, "rows.db");
    sqlite3_stmt *query = prepare(db, "SELECT b FROM t WHERE id = ?");
    unsigned seed = 7;
    double begun = now(), took;
    int done = 0;

    do {
        seed = seed * 1103515245u + 12345u;
        sqlite3_bind_int(query, 1, (int)((seed >> 8) % ROWS) + 1);
        if (sqlite3_step(query) != SQLITE_ROW)
            fail("SELECT", sqlite3_errmsg(db));
        sqlite3_reset(query);
        done++;
    } while ((took = now() - begun) < SLICE);
    sqlite3_finalize(query);
    sqlite3_close(db);
    return done / took;
}

/* Returns the size of the database in MiB. */
static double mib(sqlite3 *db) {
    sqlite3_stmt *query = prepare(
        db, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size");
    double bytes = sqlite3_step(query) == SQLITE_ROW ? sqlite3_column_double(query, 0) : 0;
    sqlite3_finalize(query);
    return bytes / (1 << 20);
}

static double timed(const struct place *place, const char *sql) {
    sqlite3 *db = open_db(place, "rows.db");
    double size = mib(db), begun = now(), took;

    run(db, sql);
    took = now() - begun;
    sqlite3_close(db);
    return size / took;
}

static double scan(const struct place *place) {
    return timed(place, "SELECT sum(length(b)) FROM t");
}

static double vacuum(const struct place *place) {
    return timed(place, "PRAGMA synchronous = FULL; VACUUM");
}

static const struct experiment {
    const char *what;
    double (*measure)(const struct place *place);
} experiments[] = {
    {"insert transactions/s, WAL, FULL", wal_full},
    {"insert transactions/s, DELETE, FULL", delete_full},
    {"insert transactions/s, WAL, OFF", wal_off},
    {"insert transactions/s, DELETE, OFF", delete_off},
    {"reads by key/s", point_reads},
    {"scan, MiB/s", scan},
    {"VACUUM, MiB/s", vacuum},
};
#define EXPERIMENTS (sizeof experiments / sizeof *experiments)

static int order(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void find(struct place *place, char *text) {
    char *at = strchr(text, '=');
    struct vfscale_task *task;
    struct vfscale_fs *fs;

    if (at == NULL)
        fail(text, "NAME=PLACE");
    *at++ = 0;
    *place = (struct place){.name = text};
    if (strcmp(at, "memory") == 0) {
        if (vfscale_fs_memory(NULL, 0, &fs) < 0 || vfscale_task_new(fs, NULL, 0, &task) < 0 ||
            vfscale_sqlite_register_task("memory", task) != SQLITE_OK)
            fail(at, "no tree");
        place->vfs = "memory";
    } else if (strncmp(at, "vfscale:", 8) == 0) {
        place->vfs = "vfscale";
        snprintf(place->prefix, sizeof place->prefix, "%s:", at + 8);
    } else {
        snprintf(place->prefix, sizeof place->prefix, "%s", at);
    }
}

/* Fills a place, and keeps it open as a program does. */
static sqlite3 *fill(const struct place *place, const char *name, int rows, int bytes) {
    sqlite3 *db = open_db(place, name);
    char sql[300];

    snprintf(sql, sizeof sql,
             "CREATE TABLE t (id INTEGER PRIMARY KEY, b BLOB);"
             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)"
             " INSERT INTO t SELECT i, randomblob(%d) FROM n", rows, bytes);
    run(db, sql);
    return db;
}

static int places(int rounds, int count, char **texts) {
    static double found[EXPERIMENTS][PLACES_MAX][ROUNDS_MAX];
    struct place all[PLACES_MAX];
    int round, i;
    size_t e;

    for (i = 0; i < count; i++) {
        find(&all[i], texts[i]);
        fill(&all[i], "rows.db", ROWS, 100);
    }
    for (round = 0; round < rounds; round++)
        for (e = 0; e < EXPERIMENTS; e++)
            for (i = 0; i < count; i++) {
                int place = (i + round) % count;
                found[e][place][round] = experiments[e].measure(&all[place]);
            }
    printf("| |");
    for (i = 0; i < count; i++)
        printf(" %s |", all[i].name);
    printf("\n| --- |");
    for (i = 0; i < count; i++)
        printf(" ---: |");
    for (e = 0; e < EXPERIMENTS; e++) {
        printf("\n| %s |", experiments[e].what);
        for (i = 0; i < count; i++) {
            double *sorted = found[e][i];
            qsort(sorted, (size_t)rounds, sizeof *sorted, order);
            printf(" %.0f (%.0f–%.0f) |", sorted[rounds / 2], sorted[0], sorted[rounds - 1]);
        }
    }
    printf("\n");
    return 0;
}

/* Prints the median, and the range of all but the tenth at each end. */
static void print_times(const char *what, double *times, int count) {
    qsort(times, (size_t)count, sizeof *times, order);
    printf("%s: %.1f us (%.1f–%.1f)\n", what, times[count / 2] * 1e6, times[count / 10] * 1e6,
           times[count - 1 - count / 10] * 1e6);
}

static int forks(const char *image, int count) {
    double *still = calloc((size_t)count, sizeof *still);
    double *busy = calloc((size_t)count, sizeof *busy);
    double *first = calloc((size_t)count, sizeof *first);
    struct place place = {.vfs = "vfscale"};
    char child[40], name[4300];
    sqlite3 *db, *in_child;
    double begun;
    int i;

    if (still == NULL || busy == NULL || first == NULL)
        fail("memory", "none");
    snprintf(place.prefix, sizeof place.prefix, "%s:", image);
    db = fill(&place, "app.db", 100 * 1024, 950);
    run(db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL");
    printf("database: %.0f MiB\n", mib(db));
    for (i = 0; i < 2 * count; i++) {
        /* Half of the forks are of a database that has changed since the last one. */
        if (i % 2 == 1)
            run(db, "UPDATE t SET b = randomblob(950) WHERE id = abs(random() % 100000) + 1");
        snprintf(child, sizeof child, "child%d", i);
        begun = now();
        if (vfscale_sqlite_fork(image, "main", child) != SQLITE_OK)
            fail(child, "not forked");
        (i % 2 == 1 ? busy : still)[i / 2] = now() - begun;
    }
    for (i = 0; i < count && i < 100; i++) {
        snprintf(name, sizeof name, "%s:child%d:", image, i);
        place = (struct place){.vfs = "vfscale"};
        snprintf(place.prefix, sizeof place.prefix, "%s", name);
        begun = now();
        in_child = open_db(&place, "app.db");
        run(in_child, "SELECT count(*) FROM t WHERE id < 10");
        first[i] = now() - begun;
        sqlite3_close(in_child);
    }
    print_times("fork", still, count);
    print_times("fork after a commit", busy, count);
    print_times("first query in a child, with its opening", first, i);
    sqlite3_close(db);
    free(still);
    free(busy);
    free(first);
    return 0;
}

int main(int argc, char **argv) {
    if (vfscale_sqlite_register("vfscale") != SQLITE_OK)
        fail("the VFS", "not registered");
    if (argc == 4 && strcmp(argv[1], "fork") == 0 && atoi(argv[3]) > 0)
        return forks(argv[2], atoi(argv[3]));
    if (argc > 3 && argc - 3 <= PLACES_MAX && strcmp(argv[1], "places") == 0 &&
        atoi(argv[2]) > 0 && atoi(argv[2]) <= ROUNDS_MAX)
        return places(atoi(argv[2]), argc - 3, argv + 3);
    fprintf(stderr, "bench places ROUNDS NAME=PLACE... | fork IMAGE COUNT\n");
    return 2;
}
