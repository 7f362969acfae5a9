/*
 * Makes a JVM one that means no good to who looks at it.
 *
 * loaders=N: before the program runs, puts so many class loaders before the VM's own that are none, as far as the VM's
 * tables tell. The VM must not collect garbage: it would follow them too.
 *
 * Called like nprof's shim, it passes for it; whoever asks the JVM to load it once more ends the JVM.
 */
#include <dlfcn.h>
#include <jni.h>
#include <jvmti.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More than a ClassLoaderData takes. */
#define LOADER_SIZE 128

static size_t loaders;

/* The value of a variable that libjvm exports. */
static uint64_t exported(const char *name) {
    uint64_t *variable = dlsym(RTLD_DEFAULT, name);
    if (variable == NULL) {
        fprintf(stderr, "no %s\n", name);
        abort();
    }
    return *variable;
}

/* A column of the VM's table of fields, of the row for a type and a field. */
static uint64_t described(const char *type, const char *field, const char *column) {
    char *row = (char *)exported("gHotSpotVMStructs");
    uint64_t type_name = exported("gHotSpotVMStructEntryTypeNameOffset");
    uint64_t field_name = exported("gHotSpotVMStructEntryFieldNameOffset");
    for (;; row += exported("gHotSpotVMStructEntryArrayStride")) {
        const char *of = *(const char **)(row + type_name);
        if (of == NULL) {
            fprintf(stderr, "no %s::%s\n", type, field);
            abort();
        }
        if (strcmp(of, type) == 0 && strcmp(*(const char **)(row + field_name), field) == 0) {
            return *(uint64_t *)(row + exported(column));
        }
    }
}

static void forge_loaders(void) {
    char **head = (char **)described("ClassLoaderDataGraph", "_head", "gHotSpotVMStructEntryAddressOffset");
    uint64_t next = described("ClassLoaderData", "_next", "gHotSpotVMStructEntryOffsetOffset");
    char *forged = calloc(loaders, LOADER_SIZE);
    if (forged == NULL) {
        abort();
    }
    for (size_t at = 0; at < loaders; at++) {
        char *loader = forged + at * LOADER_SIZE;
        *(char **)(loader + next) = at + 1 < loaders ? loader + LOADER_SIZE : *head;
    }
    __atomic_store_n(head, forged, __ATOMIC_RELEASE);
}

static void JNICALL on_init(jvmtiEnv *ti, JNIEnv *env, jthread thread) {
    (void)ti, (void)env, (void)thread;
    if (loaders > 0) {
        forge_loaders();
    }
}

JNIEXPORT jint JNICALL Agent_OnLoad(JavaVM *vm, char *options, void *reserved) {
    (void)reserved;
    jvmtiEnv *ti;
    if (options != NULL && sscanf(options, "loaders=%zu", &loaders) != 1) {
        return JNI_ERR;
    }
    if ((*vm)->GetEnv(vm, (void **)&ti, JVMTI_VERSION_11) != JNI_OK) {
        return JNI_ERR;
    }
    jvmtiEventCallbacks callbacks = {.VMInit = on_init};
    (*ti)->SetEventCallbacks(ti, &callbacks, sizeof callbacks);
    return (*ti)->SetEventNotificationMode(ti, JVMTI_ENABLE, JVMTI_EVENT_VM_INIT, NULL);
}

JNIEXPORT jint JNICALL Agent_OnAttach(JavaVM *vm, char *options, void *reserved) {
    (void)vm, (void)options, (void)reserved;
    abort();
}
