/* The tree that SQLite's own tests run in. */

#ifndef VFSCALE_SQLITE_SUITE_H
#define VFSCALE_SQLITE_SUITE_H

#include <vfscale.h>

/** The task that finds the databases; its working directory is the folder of the tests. */
extern struct vfscale_task *suite_task;

/** The folder of the tests, a path of the host that leads into the tree. */
extern char suite_folder[4112];

/** Makes Tcl's commands for files work in the tree, for all paths below suite_folder. */
void suite_register_tcl(void);

#endif
