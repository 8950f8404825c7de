/*
 * Stands in for Pyxis in a Slurm lab: its options of srun, and what they do to a task, with a directory in place of an
 * image. Nothing is downloaded and nothing is unpacked: whatever image is asked for, the tasks see the tree ROOT, this
 * machine's /usr in it, and the mounts. Built by lab/slurm-conf.sh with the version of the Slurm that loads it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* What spank.h declares. */
typedef struct spank_handle *spank_t;
struct spank_option {
	char *name;
	char *arginfo;
	char *usage;
	int has_arg;
	int val;
	int (*callback)(int val, const char *argument, int remote);
};
extern int spank_option_register(spank_t spank, struct spank_option *option);
extern void slurm_error(const char *format, ...);

const char plugin_name[] = "pyxis";
const char plugin_type[] = "spank";
const unsigned int plugin_version = SLURM_VERSION;
const unsigned int spank_plugin_version = 1;

static char *image, *mounts;

static int take(int which, const char *argument, int remote)
{
	(void)remote;
	*(which ? &mounts : &image) = strdup(argument);
	return 0;
}

static struct spank_option options[] = {
	{"container-image", "IMAGE", "[pyxis] the image to use for the container", 1, 0, take},
	{"container-mounts", "SRC:DST[,SRC:DST...]", "[pyxis] bind mounts inside the container", 1, 1, take},
};

int slurm_spank_init(spank_t spank, int argc, char **argv)
{
	(void)argc, (void)argv;
	for (size_t i = 0; i < sizeof options / sizeof *options; i++)
		if (spank_option_register(spank, &options[i]))
			return -1;
	return 0;
}

/* The directory with all above it. */
static void make(const char *path)
{
	char part[4096];
	for (size_t i = 1; i < sizeof part && path[i - 1]; i++)
		if (path[i] == '/' || !path[i]) {
			memcpy(part, path, i);
			part[i] = 0;
			mkdir(part, 0755);
		}
}

static int show(const char *root, const char *from, const char *as)
{
	char to[4096];
	snprintf(to, sizeof to, "%s%s", root, as);
	make(to);
	if (!mount(from, to, NULL, MS_BIND | MS_REC, NULL))
		return 0;
	slurm_error("pyxis: cannot mount %s at %s: %s", from, to, strerror(errno));
	return -1;
}

int slurm_spank_task_init_privileged(spank_t spank, int argc, char **argv)
{
	static const char *own[] = {"/usr", "/proc", "/dev", "/sys"};
	(void)spank;
	if (!image)
		return 0;
	if (argc != 1 || unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) {
		slurm_error("pyxis: no mounts of one's own: %s", strerror(errno));
		return -1;
	}
	for (size_t i = 0; i < sizeof own / sizeof *own; i++)
		if (show(argv[0], own[i], own[i]))
			return -1;
	for (char *entry = mounts ? strtok(mounts, ",") : NULL; entry; entry = strtok(NULL, ",")) {
		char *as = strchr(entry, ':');
		if (!as)
			return -1;
		*as++ = 0;
		if (show(argv[0], entry, as))
			return -1;
	}
	if (chroot(argv[0]) || chdir("/")) {
		slurm_error("pyxis: cannot enter %s: %s", argv[0], strerror(errno));
		return -1;
	}
	return 0;
}
