/*
 * An agent that counts calls of JNI functions by itself: it puts code of its own in front of each function in the VM's table when
 * targets.Libraries tells it to. Its option is a file, where the counts can be read without asking the JVM, which would call functions to
 * answer.
 */
#include <fcntl.h>
#include <jni.h>
#include <jvmti.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Of the table, the first words are no functions; newer VMs have more. */
enum { FIRST = 4, ALL = 236, ON_21 = 235, BEFORE = 234 };
enum { VERSION_21 = 0x00150000, VERSION_24 = 0x00180000 };

#define HIDDEN __attribute__((visibility("hidden")))

extern void *table_calls[ALL] HIDDEN;
HIDDEN void *table_originals[ALL];
HIDDEN unsigned long *table_counts;

static jvmtiEnv *tools;

JNIEXPORT void JNICALL Java_targets_Libraries_wrap(JNIEnv *env, jclass class, jboolean wraps) {
    jniNativeInterface *table;
    /* Asked before there is anything to count. */
    static jint version;
    version = version == 0 ? (*env)->GetVersion(env) : version;
    int functions = version >= VERSION_24 ? ALL : version >= VERSION_21 ? ON_21 : BEFORE;
    (void)class;
    if ((*tools)->GetJNIFunctionTable(tools, &table) != JVMTI_ERROR_NONE) {
        abort();
    }
    void **words = (void **)table;
    for (int i = FIRST; i < functions; i++) {
        if (wraps) {
            table_originals[i] = words[i];
        }
        words[i] = wraps ? table_calls[i] : table_originals[i];
    }
    if ((*tools)->SetJNIFunctionTable(tools, table) != JVMTI_ERROR_NONE) {
        abort();
    }
    (*tools)->Deallocate(tools, (unsigned char *)table);
}

JNIEXPORT jint JNICALL Agent_OnLoad(JavaVM *vm, char *file, void *reserved) {
    size_t bytes = ALL * sizeof *table_counts;
    int counts = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    (void)reserved;
    if (counts < 0 || ftruncate(counts, (off_t)bytes) != 0) {
        return JNI_ERR;
    }
    table_counts = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, counts, 0);
    close(counts);
    jint error = (*vm)->GetEnv(vm, (void **)&tools, JVMTI_VERSION_1_2);
    return table_counts == MAP_FAILED ? JNI_ERR : error;
}
