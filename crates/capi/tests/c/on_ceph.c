/* A volume on an image of Ceph RBD, opened by two openers one after the other. VFSCALE_CEPH_CONF names
 * the configuration of a cluster that `scripts/ceph up` has made; `scripts/test ceph` does both. */

#define _GNU_SOURCE
#include <unistd.h>

#include "check.h"

static const char *conf;

static int has(const char *word) { return strstr(vfscale_error(), word) != NULL; }

/* Runs Ceph's program rbd. */
static int rbd(const char *command, const char *what) {
    char line[1024];
    snprintf(line, sizeof line, "rbd --conf '%s' %s '%s' >/dev/null 2>&1", conf, command, what);
    return system(line);
}

/* Removes an image. A client that was refused may still watch it for a moment. */
static int removed(const char *name) {
    int tries;
    for (tries = 0; tries < 60; tries++) {
        if (rbd("rm --no-progress", name + strlen("rbd:")) == 0)
            return 0;
        usleep(500000);
    }
    return -1;
}

static int volume(const char *name, uint32_t flags, struct vfscale_fs **fs) {
    struct vfscale_volume_options options;
    memset(&options, 0, sizeof options);
    options.ceph_conf = conf;
    options.ceph_id = "admin";
    options.patience_s = 60;
    options.create_size = 64 << 20;
    options.sync_interval_ms = -1;
    options.flags = flags;
    return vfscale_fs_volume(name, &options, sizeof options, fs);
}

static void two_openers(const char *name) {
    struct vfscale_fs *old, *young, *none;
    struct vfscale_task *task;
    char text[32];
    OK(volume(name, 0, &old));
    IS(1, vfscale_fs_is_new(old));
    OK(vfscale_task_new(old, NULL, 0, &task));
    OK(vfscale_replace_file(task, "/state", "kept", 4, 1));
    OK(vfscale_fs_prove(old));

    IS(-EBUSY, volume(name, 0, &none));
    snprintf(text, sizeof text, "%d", (int)getpid());
    CHECK(has(text));
    IS(-EBUSY, volume(name, VFSCALE_VOLUME_READ_ONLY, &none));

    OK(volume(name, VFSCALE_VOLUME_TAKE_OVER, &young));
    IS(0, vfscale_fs_is_new(young));
    IS(-ESHUTDOWN, vfscale_fs_prove(old));
    CHECK(has(name));
    IS(-EIO, vfscale_replace_file(task, "/state", "lost", 4, 1));
    OK(vfscale_task_free(task));
    CHECK(vfscale_fs_close(old) < 0);
    IS(-EBADF, vfscale_fs_close(old));

    OK(vfscale_fs_prove(young));
    OK(vfscale_task_new(young, NULL, 0, &task));
    IS(4, vfscale_read_file(task, "/state", text, sizeof text));
    CHECK(memcmp(text, "kept", 4) == 0);
    OK(vfscale_replace_file(task, "/state", "more", 4, 1));
    OK(vfscale_task_free(task));
    OK(vfscale_fs_close(young));
}

static void errors(const char *name) {
    struct vfscale_volume_options options;
    struct vfscale_fs *none;
    memset(&options, 0, sizeof options);
    options.ceph_conf = conf;
    IS(-ENOENT, vfscale_fs_volume("rbd:rbd/none", &options, sizeof options, &none));
    options.ceph_id = "nobody";
    IS(-EIO, vfscale_fs_volume(name, &options, sizeof options, &none));
    CHECK(has("no such user"));
    IS(-EIO, vfscale_fs_volume("rbd:none/none", &options, sizeof options, &none));
}

int main(void) {
    char name[64], space[64], within[80];
    conf = getenv("VFSCALE_CEPH_CONF");
    if (conf == NULL) {
        fprintf(stderr, "VFSCALE_CEPH_CONF does not name a cluster\n");
        return 1;
    }
    snprintf(name, sizeof name, "rbd:rbd/from-c-%d", (int)getpid());
    snprintf(space, sizeof space, "rbd/space-c-%d", (int)getpid());
    snprintf(within, sizeof within, "rbd:%s/image", space);
    OK(rbd("namespace create", space));
    two_openers(name);
    two_openers(within);
    errors(name);
    OK(removed(name));
    OK(removed(within));
    OK(rbd("namespace remove", space));
    printf("on_ceph: passed\n");
    return 0;
}
