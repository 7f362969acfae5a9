// A process that looks like a JVM and keeps waiting whoever reads it: a page of the VM's own tables is backed by a file of
// a FUSE file system that answers everything except reads. Usage: held LIBJVM DIRECTORY (to mount on; root only).
//
// libjvm is loaded and never started, so that its exported tables are those of a real VM.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIRECTORY = 1, FILE_INODE = 2, PAGE = 4096 };

static int fuse;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void answer(uint64_t request, int error, const void *data, size_t size) {
    char message[1024];
    struct fuse_out_header header = {.len = sizeof header + size, .error = error, .unique = request};
    memcpy(message, &header, sizeof header);
    memcpy(message + sizeof header, data, size);
    if (write(fuse, message, header.len) < 0 && errno != ENOENT) fail("answer");
}

static struct fuse_attr attributes(uint64_t inode) {
    struct fuse_attr attr = {.ino = inode, .nlink = 1, .size = 1 << 20, .mode = S_IFREG | 0644};
    if (inode == DIRECTORY) attr.mode = S_IFDIR | 0755;
    return attr;
}

// Answers all that it takes to map the file. Who reads from it waits.
static void *deliver(void *unused) {
    static char request[1 << 17];
    for (;;) {
        if (read(fuse, request, sizeof request) < 0) {
            if (errno == EINTR || errno == ENOENT) continue;
            return unused;
        }
        struct fuse_in_header *header = (struct fuse_in_header *)request;
        struct fuse_init_out init = {.major = 7, .minor = 31, .max_write = PAGE};
        struct fuse_entry_out entry = {.nodeid = FILE_INODE, .entry_valid = 1000, .attr_valid = 1000};
        struct fuse_attr_out attr = {.attr_valid = 1000, .attr = attributes(header->nodeid)};
        struct fuse_open_out opened = {0};
        entry.attr = attributes(FILE_INODE);
        switch (header->opcode) {
        case FUSE_INIT: answer(header->unique, 0, &init, sizeof init); break;
        case FUSE_LOOKUP: answer(header->unique, 0, &entry, sizeof entry); break;
        case FUSE_GETATTR: answer(header->unique, 0, &attr, sizeof attr); break;
        case FUSE_OPEN: answer(header->unique, 0, &opened, sizeof opened); break;
        case FUSE_READ:
        case FUSE_INTERRUPT:
        case FUSE_FORGET:
        case FUSE_BATCH_FORGET: break;
        default: answer(header->unique, -ENOSYS, "", 0);
        }
    }
}

static int mount_file(const char *directory) {
    char options[128], path[4096];
    fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fuse < 0) fail("/dev/fuse");
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fuse);
    if (mount("held", directory, "fuse", MS_NOSUID | MS_NODEV, options)) fail("mount");
    pthread_t thread;
    if (pthread_create(&thread, NULL, deliver, NULL)) fail("pthread_create");
    snprintf(path, sizeof path, "%s/file", directory);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) fail(path);
    // Whoever lists the directory later finds it as it was.
    if (umount2(directory, MNT_DETACH)) fail("umount2");
    return file;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    void *vm = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!vm) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    uintptr_t tables = (uintptr_t)dlsym(vm, "gHotSpotVMStructs");
    if (!tables) return 1;
    int file = mount_file(argv[2]);
    void *page = (void *)(tables & ~(uintptr_t)(PAGE - 1));
    if (mmap(page, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) != page) fail("mmap");
    // The kernel learns here that nothing is to be flushed, or it would ask at the end, when nobody answers.
    if (close(file)) fail("close");
    printf("ready %d\n", getpid());
    fflush(stdout);
    getchar();
    _exit(0);
}
