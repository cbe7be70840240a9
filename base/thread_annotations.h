// What Clang's thread-safety analysis is told (-Wthread-safety; tools/checks/lock-rules runs it): which lock
// guards a member, and which a function needs. Other compilers see nothing.
// https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
#pragma once

#if defined(__clang__)
#define SPILLWAY_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define SPILLWAY_THREAD_ANNOTATION(x)
#endif

#define SPILLWAY_CAPABILITY(name) SPILLWAY_THREAD_ANNOTATION(capability(name))
#define SPILLWAY_SCOPED_CAPABILITY SPILLWAY_THREAD_ANNOTATION(scoped_lockable)
#define SPILLWAY_GUARDED_BY(lock) SPILLWAY_THREAD_ANNOTATION(guarded_by(lock))
#define SPILLWAY_PT_GUARDED_BY(lock) SPILLWAY_THREAD_ANNOTATION(pt_guarded_by(lock))
#define SPILLWAY_REQUIRES(...) SPILLWAY_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define SPILLWAY_REQUIRES_SHARED(...) SPILLWAY_THREAD_ANNOTATION(requires_shared_capability(__VA_ARGS__))
#define SPILLWAY_EXCLUDES(...) SPILLWAY_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define SPILLWAY_ACQUIRE(...) SPILLWAY_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define SPILLWAY_ACQUIRE_SHARED(...) SPILLWAY_THREAD_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define SPILLWAY_TRY_ACQUIRE(...) SPILLWAY_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define SPILLWAY_RELEASE(...) SPILLWAY_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define SPILLWAY_RELEASE_SHARED(...) SPILLWAY_THREAD_ANNOTATION(release_shared_capability(__VA_ARGS__))
#define SPILLWAY_RELEASE_GENERIC(...) SPILLWAY_THREAD_ANNOTATION(release_generic_capability(__VA_ARGS__))
#define SPILLWAY_RETURN_CAPABILITY(lock) SPILLWAY_THREAD_ANNOTATION(lock_returned(lock))
#define SPILLWAY_NO_THREAD_SAFETY_ANALYSIS SPILLWAY_THREAD_ANNOTATION(no_thread_safety_analysis)
