#include "machine/pool.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "machine/fpenv.h"
#include "machine/interrupt.h"
#include "machine/sizes.h"

namespace neuronsim {
namespace {

struct Job {
    int64_t n, chunk;
    const std::function<void(int64_t, int64_t)>* body;
    std::atomic<int64_t> next{0};
    std::exception_ptr error{};  // the first one
    std::mutex error_mutex{};
    std::atomic<bool> failed = false;

    void work() {
        const PinnedEnvironment pinned;
        const Scoped<const std::atomic<bool>*> stoppable(cancelled, &failed);
        for (int64_t begin; (begin = next.fetch_add(chunk)) < n;) {
            try {
                (*body)(begin, begin + chunk < n ? begin + chunk : n);
            } catch (...) {
                fail();
            }
        }
    }
    // With the exception that is being handled.
    void fail() {
        const std::lock_guard lock(error_mutex);
        if (!error) error = std::current_exception();
        next = n;
        failed = true;
    }
};

std::atomic<int> awake = 0;  // workers that a job need not wake

class Pool {
public:
    explicit Pool(int workers) {
        // Where the system gives no more threads, those that started do the work.
        try {
            for (int i = 0; i < workers; ++i) threads_.emplace_back([this] { loop(); });
        } catch (const std::system_error&) {
        }
    }
    ~Pool() {
        {
            const std::lock_guard lock(mutex_);
            stop_ = true;
        }
        wake_.notify_all();
        for (std::thread& t : threads_) t.join();
    }
    void run(Job& job) {
        {
            const std::lock_guard lock(mutex_);
            if (asleep_ > 0) keep_off_this_processor();
            job_ = &job;
            busy_ = static_cast<int>(threads_.size());
            ++generation_;
        }
        wake_.notify_all();
        job.work();
        if (spin_until([this] { return busy_ == 0; })) return;
        std::unique_lock lock(mutex_);
        caller_sleeps_ = true;
        while (!done_.wait_for(lock, between_looks, [this] { return busy_ == 0; })) {
            lock.unlock();
            try {
                look_for_signals();
            } catch (...) {
                job.fail();
            }
            lock.lock();
        }
        caller_sleeps_ = false;
    }

private:
    static constexpr std::chrono::milliseconds between_looks{50};

    // Waits a little without sleeping, since waking takes longer than a small job. Returns whether it
    // has come true.
    template <class Condition>
    static bool spin_until(const Condition& condition) {
        constexpr int turns = 2000;  // measured: some 20 to 40 microseconds
        for (int i = 0; i < turns; ++i) {
            if (condition()) return true;
            relax();
        }
        return condition();
    }
    // A thread that is woken is often put on the processor of the one that wakes it, and stays there
    // for many milliseconds (measured: two threads slower than one).
    void keep_off_this_processor() {
#if defined(__linux__)
        cpu_set_t allowed;
        const int here = sched_getcpu();
        if (here < 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
        if (CPU_COUNT(&allowed) < 2 || !CPU_ISSET(here, &allowed)) return;
        CPU_CLR(here, &allowed);
        for (std::thread& t : threads_)
            pthread_setaffinity_np(t.native_handle(), sizeof allowed, &allowed);
#endif
    }
    static void relax() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }

    void loop() {
        ++awake;
        work_until_stopped();
        --awake;
    }
    void work_until_stopped() {
        for (uint64_t seen = 0;;) {
            const auto is_called = [&] { return stop_ || generation_ != seen; };
            if (!spin_until(is_called)) {
                std::unique_lock lock(mutex_);
                ++asleep_, --awake;
                wake_.wait(lock, is_called);
                --asleep_, ++awake;
            }
            if (stop_) return;
            seen = generation_;  // whose job stays until nobody is busy: then the caller may return
            job_.load()->work();
            // Without the mutex, which the caller of the next job would wait for. Either it sees that
            // nobody is busy before it sleeps, or that it sleeps is seen here.
            if (--busy_ > 0 || !caller_sleeps_) continue;
            const std::lock_guard lock(mutex_);
            done_.notify_one();
        }
    }

    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::condition_variable wake_, done_;
    std::atomic<Job*> job_ = nullptr;
    std::atomic<bool> caller_sleeps_ = false;
    int asleep_ = 0;
    std::atomic<uint64_t> generation_ = 0;
    std::atomic<int> busy_ = 0;
    std::atomic<bool> stop_ = false;
};

std::atomic<int> requested_threads = 1;
int threads_of_pool = 1;
Pool* pool = nullptr;  // leaked at exit: joining threads from a static destructor can deadlock
std::mutex pool_mutex;

void end_pool() {  // under the mutex
    delete pool;
    pool = nullptr;
}

// A forked child has no workers: it forgets the parent's pool and makes its own when it needs one.
void forget_pool_in_child() {
    pool = nullptr;
    awake = 0;
    new (&pool_mutex) std::mutex;
}
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, forget_pool_in_child);

}  // namespace

int thread_count() { return requested_threads; }
bool workers_are_awake() { return awake > 0; }

void set_thread_count(int n) {
    // A signal's handler may come here while this thread's kernel, or another's, uses the pool: then
    // the next user of it makes a new one.
    requested_threads = n;
    if (is_handling_signals) return;
    const std::unique_lock lock(pool_mutex, std::try_to_lock);
    if (lock.owns_lock() && n != threads_of_pool) end_pool();
}

void share_out(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
    const int64_t grains = ceil_divide(n, grain);
    const int threads = requested_threads;
    // A second caller computes alone rather than wait for the workers: another thread, or a signal's
    // handler in this one.
    std::unique_lock lock(pool_mutex, std::defer_lock);
    if (threads == 1 || is_handling_signals || !lock.try_lock()) {
        const PinnedEnvironment pinned;
        body(0, n);
        return;
    }
    if (threads != threads_of_pool) end_pool();
    if (pool == nullptr) pool = new Pool(threads - 1);
    threads_of_pool = threads;
    const int64_t pieces = 4LL * threads;
    Job job{n, ceil_divide(grains, pieces) * grain, &body};
    pool->run(job);
    if (job.error) std::rethrow_exception(job.error);
}

}  // namespace neuronsim
