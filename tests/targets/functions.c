/*
 * Natives of targets.Functions: they call JNI functions in known numbers by the VM's table, and whatever else they need by a copy of it from
 * before anybody changed it. And the agent that puts functions of its own into the table.
 */
#define _GNU_SOURCE
#include <jni.h>
#include <jvmti.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>
#include <x86intrin.h>

#define NATIVE(type, name) JNIEXPORT type JNICALL Java_targets_Functions_##name
/* Sixes of integers and eights of floating-point numbers are in registers; here are more of both, in turn. */
#define PARAMETERS "(IJFDBSCZIJDFDDFDDFDDLjava/lang/Object;)"
#define PASSED                                                                                                        \
    v->a, v->b, v->c, v->d, v->e, v->f, v->g, v->h, v->i, v->j, v->k, v->l, v->m, v->n, v->o, v->p, v->q, v->r, v->s,  \
        v->t, v->u

static struct JNINativeInterface_ before;
static jvmtiEnv *tools;
static jclass functions;
static jmethodID constructor, down, nothing;

struct values {
    jint a;
    jlong b;
    jfloat c;
    jdouble d;
    jbyte e;
    jshort f;
    jchar g;
    jboolean h;
    jint i;
    jlong j;
    jdouble k;
    jfloat l;
    jdouble m, n;
    jfloat o;
    jdouble p, q;
    jfloat r;
    jdouble s, t;
    jobject u;
};

static struct values values(int round, jobject object) {
    struct values v = {.a = round + 1,
                       .b = (1LL << 40) + round,
                       .c = 0.5f + (float)(round % 50),
                       .d = 0.25 + round,
                       .e = (jbyte)(round % 100),
                       .f = (jshort)(round % 1000),
                       .g = (jchar)(round % 60000),
                       .h = (jboolean)(round % 2),
                       .i = -round,
                       .k = 11.5,
                       .l = 12.25f,
                       .m = 13,
                       .n = 14.75,
                       .o = 15.5f,
                       .p = 16,
                       .q = 17.25,
                       .r = 18.5f,
                       .s = 19,
                       .t = 20.75,
                       .u = object};
    double sum = v.a + 2.0 * (double)v.b + 3.0 * v.c + 4 * v.d + 5 * v.e + 6 * v.f + 7 * v.g + 8 * v.h + 9.0 * v.i + 11 * v.k +
                 12 * v.l + 13 * v.m + 14 * v.n + 15 * v.o + 16 * v.p + 17 * v.q + 18 * v.r + 19 * v.s + 20 * v.t;
    /* What the Java method is to find, in quarters. */
    v.j = (jlong)(4 * sum);
    return v;
}

static void list(const struct values *v, jvalue of[21]) {
    const jvalue all[21] = {{.i = v->a}, {.j = v->b}, {.f = v->c}, {.d = v->d}, {.b = v->e}, {.s = v->f}, {.c = v->g},
                            {.z = v->h}, {.i = v->i}, {.j = v->j}, {.d = v->k}, {.f = v->l}, {.d = v->m}, {.d = v->n},
                            {.f = v->o}, {.d = v->p}, {.d = v->q}, {.f = v->r}, {.d = v->s}, {.d = v->t}, {.l = v->u}};
    for (int i = 0; i < 21; i++) {
        of[i] = all[i];
    }
}

#define NUMBERS(DO)                                                                                                   \
    DO(Boolean, jboolean, h, "Z")                                                                                     \
    DO(Byte, jbyte, e, "B") DO(Char, jchar, g, "C") DO(Short, jshort, f, "S") DO(Int, jint, a, "I")                    \
    DO(Long, jlong, b, "J") DO(Float, jfloat, c, "F") DO(Double, jdouble, d, "D")
#define ALL(DO) NUMBERS(DO) DO(Object, jobject, u, "Ljava/lang/Object;")

#define IDS(Type, type, member, descriptor) static jmethodID take##Type, give##Type; static jfieldID field##Type, static##Type;
ALL(IDS)
static jmethodID takeVoid, giveVoid;

#define SAME(Type, type, member, descriptor)                                                                          \
    static int same##Type(JNIEnv *env, type one, type other) {                                                        \
        (void)env;                                                                                                    \
        return one == other;                                                                                          \
    }
NUMBERS(SAME)

static int sameObject(JNIEnv *env, jobject one, jobject other) {
    int is_same = before.IsSameObject(env, one, other);
    before.DeleteLocalRef(env, one);
    return is_same;
}

/* The three forms in which an object's method is called, one of its class whatever the object's, and a static one. */
#define FORMS(Type, type, member, descriptor)                                                                         \
    static type listed##Type(JNIEnv *env, jobject object, jmethodID id, ...) {                                        \
        va_list list;                                                                                                 \
        va_start(list, id);                                                                                           \
        type result = (*env)->Call##Type##MethodV(env, object, id, list);                                             \
        va_end(list);                                                                                                 \
        return result;                                                                                                \
    }                                                                                                                 \
    static type listedNonvirtual##Type(JNIEnv *env, jobject object, jclass class, jmethodID id, ...) {                \
        va_list list;                                                                                                 \
        va_start(list, id);                                                                                           \
        type result = (*env)->CallNonvirtual##Type##MethodV(env, object, class, id, list);                            \
        va_end(list);                                                                                                 \
        return result;                                                                                                \
    }                                                                                                                 \
    static type listedStatic##Type(JNIEnv *env, jclass class, jmethodID id, ...) {                                    \
        va_list list;                                                                                                 \
        va_start(list, id);                                                                                           \
        type result = (*env)->CallStatic##Type##MethodV(env, class, id, list);                                        \
        va_end(list);                                                                                                 \
        return result;                                                                                                \
    }                                                                                                                 \
    static int call##Type(JNIEnv *env, const struct values *v, const jvalue *all) {                                   \
        jobject o = v->u;                                                                                             \
        jclass k = functions;                                                                                         \
        int right = same##Type(env, (*env)->Call##Type##Method(env, o, take##Type, PASSED), v->member);               \
        right += same##Type(env, listed##Type(env, o, take##Type, PASSED), v->member);                                \
        right += same##Type(env, (*env)->Call##Type##MethodA(env, o, take##Type, all), v->member);                    \
        right += same##Type(env, (*env)->CallNonvirtual##Type##Method(env, o, k, take##Type, PASSED), v->member);     \
        right += same##Type(env, listedNonvirtual##Type(env, o, k, take##Type, PASSED), v->member);                   \
        right += same##Type(env, (*env)->CallNonvirtual##Type##MethodA(env, o, k, take##Type, all), v->member);       \
        right += same##Type(env, (*env)->CallStatic##Type##Method(env, k, give##Type, PASSED), v->member);            \
        right += same##Type(env, listedStatic##Type(env, k, give##Type, PASSED), v->member);                          \
        right += same##Type(env, (*env)->CallStatic##Type##MethodA(env, k, give##Type, all), v->member);              \
        return 9 - right;                                                                                             \
    }
ALL(FORMS)

static jobject listedNew(JNIEnv *env, jclass class, jmethodID id, ...) {
    va_list list;
    va_start(list, id);
    jobject result = (*env)->NewObjectV(env, class, id, list);
    va_end(list);
    return result;
}

#define LISTED_VOID(name, call)                                                                                       \
    static void name {                                                                                                \
        va_list list;                                                                                                 \
        va_start(list, id);                                                                                           \
        call;                                                                                                         \
        va_end(list);                                                                                                 \
    }
LISTED_VOID(listedVoid(JNIEnv *env, jobject object, jmethodID id, ...), (*env)->CallVoidMethodV(env, object, id, list))
LISTED_VOID(listedNonvirtualVoid(JNIEnv *env, jobject object, jclass class, jmethodID id, ...),
            (*env)->CallNonvirtualVoidMethodV(env, object, class, id, list))
LISTED_VOID(listedStaticVoid(JNIEnv *env, jclass class, jmethodID id, ...),
            (*env)->CallStaticVoidMethodV(env, class, id, list))

static void callVoid(JNIEnv *env, const struct values *v, const jvalue *all) {
    (*env)->CallVoidMethod(env, v->u, takeVoid, PASSED);
    listedVoid(env, v->u, takeVoid, PASSED);
    (*env)->CallVoidMethodA(env, v->u, takeVoid, all);
    (*env)->CallNonvirtualVoidMethod(env, v->u, functions, takeVoid, PASSED);
    listedNonvirtualVoid(env, v->u, functions, takeVoid, PASSED);
    (*env)->CallNonvirtualVoidMethodA(env, v->u, functions, takeVoid, all);
    (*env)->CallStaticVoidMethod(env, functions, giveVoid, PASSED);
    listedStaticVoid(env, functions, giveVoid, PASSED);
    (*env)->CallStaticVoidMethodA(env, functions, giveVoid, all);
}

static int made(JNIEnv *env, jobject object) {
    int is_made = object != NULL;
    before.DeleteLocalRef(env, object);
    return is_made;
}

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved) {
    JNIEnv *env;
    (void)reserved;
    if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_1_8) != JNI_OK ||
        (*vm)->GetEnv(vm, (void **)&tools, JVMTI_VERSION_1_2) != JNI_OK) {
        return JNI_ERR;
    }
    before = **env;
    functions = (*env)->NewGlobalRef(env, (*env)->FindClass(env, "targets/Functions"));
    constructor = (*env)->GetMethodID(env, functions, "<init>", PARAMETERS "V");
    down = (*env)->GetStaticMethodID(env, functions, "down", "(I)V");
    nothing = (*env)->GetStaticMethodID(env, functions, "nothing", "()V");
    takeVoid = (*env)->GetMethodID(env, functions, "takeVoid", PARAMETERS "V");
    giveVoid = (*env)->GetStaticMethodID(env, functions, "giveVoid", PARAMETERS "V");
#define FIND(Type, type, member, descriptor)                                                                          \
    take##Type = (*env)->GetMethodID(env, functions, "take" #Type, PARAMETERS descriptor);                            \
    give##Type = (*env)->GetStaticMethodID(env, functions, "give" #Type, PARAMETERS descriptor);                      \
    field##Type = (*env)->GetFieldID(env, functions, "field" #Type, descriptor);                                      \
    static##Type = (*env)->GetStaticFieldID(env, functions, "static" #Type, descriptor);                              \
    if ((*env)->ExceptionCheck(env)) {                                                                                \
        return JNI_ERR;                                                                                               \
    }
    ALL(FIND)
    return constructor == NULL ? JNI_ERR : JNI_VERSION_1_8;
}

/* Calls each of the 93 functions that call methods and constructors once with that many arguments: how many gave something else. */
NATIVE(jint, calls)(JNIEnv *env, jclass owner, jobject object, jint round) {
    struct values of = values(round, object), *v = &of;
    jvalue all[21];
    jint wrong = 0;
    (void)owner;
    list(v, all);
#define CALL(Type, type, member, descriptor) wrong += call##Type(env, v, all);
    ALL(CALL)
    callVoid(env, v, all);
    wrong += 3 - made(env, (*env)->NewObject(env, functions, constructor, PASSED)) -
             made(env, listedNew(env, functions, constructor, PASSED)) -
             made(env, (*env)->NewObjectA(env, functions, constructor, all));
    return wrong;
}

/* Writes and reads one field of each type, of an object and of the class: how many were read that had not been written. */
NATIVE(jint, fields)(JNIEnv *env, jclass owner, jobject object, jint round) {
    struct values of = values(round, object), *v = &of;
    jint wrong = 0;
    (void)owner;
#define FIELDS(Type, type, member, descriptor)                                                                        \
    (*env)->Set##Type##Field(env, object, field##Type, v->member);                                                    \
    wrong += !same##Type(env, (*env)->Get##Type##Field(env, object, field##Type), v->member);                         \
    (*env)->SetStatic##Type##Field(env, functions, static##Type, v->member);                                          \
    wrong += !same##Type(env, (*env)->GetStatic##Type##Field(env, functions, static##Type), v->member);
    ALL(FIELDS)
    return wrong;
}

/* Calls some other functions once: how many gave something unexpected. */
NATIVE(jint, others)(JNIEnv *env, jclass owner, jobject object, jclass exception) {
    jdouble number = 1.5;
    jint wrong = (*env)->GetVersion(env) < JNI_VERSION_1_8;
    jobject weak = (*env)->NewWeakGlobalRef(env, object);
    wrong += !(*env)->IsInstanceOf(env, object, functions);
    (*env)->DeleteWeakGlobalRef(env, weak);
    wrong += (*env)->PushLocalFrame(env, 4) != 0;
    jdoubleArray array = (*env)->NewDoubleArray(env, 3);
    (*env)->SetDoubleArrayRegion(env, array, 2, 1, &number);
    number = 0;
    (*env)->GetDoubleArrayRegion(env, array, 2, 1, &number);
    wrong += number != 1.5;
    (*env)->PopLocalFrame(env, NULL);
    wrong += (*env)->MonitorEnter(env, owner) != 0 || (*env)->MonitorExit(env, owner) != 0;
    wrong += (*env)->ThrowNew(env, exception, "planned") != 0;
    before.ExceptionClear(env);
    return wrong;
}

/* Calls a Java method that calls this again, until it is as deep, and asks for the version at each depth. */
NATIVE(void, nested)(JNIEnv *env, jclass owner, jint depth) {
    if (depth > 0) {
        (*env)->CallStaticVoidMethod(env, owner, down, depth - 1);
    }
    (*env)->GetVersion(env);
}

/* How many functions in the table are not those from before. */
NATIVE(jint, replaced)(JNIEnv *env, jclass owner) {
    enum { FIRST = 4, END = offsetof(struct JNINativeInterface_, GetObjectRefType) / sizeof(void *) + 1 };
    void *const *now = (void *const *)*env, *const *then = (void *const *)&before;
    jint replaced = 0;
    (void)owner;
    for (int place = FIRST; place < END; place++) {
        replaced += now[place] != then[place];
    }
    return replaced;
}

/* The agent: what it has put itself before, and how often that was called. */
static struct JNINativeInterface_ wrapped;
static atomic_long wrapped_calls;

static jint count_version(JNIEnv *env) {
    atomic_fetch_add(&wrapped_calls, 1);
    return wrapped.GetVersion(env);
}

static jdouble count_double(JNIEnv *env, jobject object, jmethodID id, ...) {
    va_list list;
    atomic_fetch_add(&wrapped_calls, 1);
    va_start(list, id);
    jdouble result = wrapped.CallDoubleMethodV(env, object, id, list);
    va_end(list);
    return result;
}

/* Puts two functions in front of what is in the table, or takes them away. */
NATIVE(jint, wrap)(JNIEnv *env, jclass owner, jboolean wraps) {
    jniNativeInterface *table;
    (void)env;
    (void)owner;
    if ((*tools)->GetJNIFunctionTable(tools, &table) != JVMTI_ERROR_NONE) {
        return -1;
    }
    if (wraps) {
        wrapped.GetVersion = table->GetVersion;
        wrapped.CallDoubleMethod = table->CallDoubleMethod;
        wrapped.CallDoubleMethodV = table->CallDoubleMethodV;
        table->GetVersion = count_version;
        table->CallDoubleMethod = count_double;
    } else {
        table->GetVersion = wrapped.GetVersion;
        table->CallDoubleMethod = wrapped.CallDoubleMethod;
    }
    jint error = (jint)(*tools)->SetJNIFunctionTable(tools, table);
    (*tools)->Deallocate(tools, (unsigned char *)table);
    return error;
}

NATIVE(jlong, wrappedCalls)(JNIEnv *env, jclass owner) {
    (void)env;
    (void)owner;
    return atomic_load(&wrapped_calls);
}

static jlong now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

/* How many nanoseconds so many calls take: of a function that does nearly nothing, and of one that calls Java. */
NATIVE(jlong, time)(JNIEnv *env, jclass owner, jint kind, jint calls) {
    jlong began = now();
    for (jint i = 0; i < calls; i++) {
        if (kind == 0) {
            (*env)->GetVersion(env);
        } else {
            (*env)->CallStaticVoidMethod(env, owner, nothing);
        }
    }
    return now() - began;
}

/* How many nanoseconds so many pairs of readings of the time stamp counter take. */
NATIVE(jlong, readings)(JNIEnv *env, jclass owner, jint pairs) {
    volatile unsigned long long sink = 0;
    (void)env;
    (void)owner;
    jlong began = now();
    for (jint i = 0; i < pairs; i++) {
        unsigned long long start = __rdtsc();
        sink += __rdtsc() - start;
    }
    return now() - began;
}
