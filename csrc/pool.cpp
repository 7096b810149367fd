#include "pool.h"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "fpenv.h"

namespace neuronsim {
namespace {

struct Job {
    int64_t n, chunk;
    const std::function<void(int64_t, int64_t)>* body;
    std::atomic<int64_t> next{0};
    std::exception_ptr error{};
    std::mutex error_mutex{};

    void work() {
        const PinnedEnvironment pinned;
        for (int64_t begin; (begin = next.fetch_add(chunk)) < n;) {
            try {
                (*body)(begin, begin + chunk < n ? begin + chunk : n);
            } catch (...) {
                const std::lock_guard lock(error_mutex);
                error = std::current_exception();
                next = n;
            }
        }
    }
};

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
            job_ = &job;
            ++generation_;
            busy_ = static_cast<int>(threads_.size());
        }
        wake_.notify_all();
        job.work();
        std::unique_lock lock(mutex_);
        done_.wait(lock, [this] { return busy_ == 0; });
        job_ = nullptr;
    }

private:
    void loop() {
        uint64_t seen = 0;
        std::unique_lock lock(mutex_);
        for (;;) {
            wake_.wait(lock, [&] { return stop_ || generation_ != seen; });
            if (stop_) return;
            seen = generation_;
            Job* job = job_;
            lock.unlock();
            job->work();
            lock.lock();
            if (--busy_ == 0) done_.notify_one();
        }
    }

    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::condition_variable wake_, done_;
    Job* job_ = nullptr;
    uint64_t generation_ = 0;
    int busy_ = 0;
    bool stop_ = false;
};

std::atomic<int> requested_threads = 1;
Pool* pool = nullptr;  // leaked at exit: joining threads from a static destructor can deadlock
std::mutex pool_mutex;

// A forked child has no workers: it forgets the parent's pool and makes its own when it needs one.
void forget_pool_in_child() {
    pool = nullptr;
    new (&pool_mutex) std::mutex;
}
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, forget_pool_in_child);

}  // namespace

int thread_count() { return requested_threads; }

void set_thread_count(int n) {
    const std::lock_guard lock(pool_mutex);
    if (n == requested_threads) return;
    delete pool;
    pool = nullptr;
    requested_threads = n;
}

void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
    if (n <= 0) return;
    const int64_t grains = (n + grain - 1) / grain;
    // A second caller from another thread computes alone rather than wait for the workers.
    std::unique_lock lock(pool_mutex, std::try_to_lock);
    if (requested_threads == 1 || grains == 1 || !lock.owns_lock()) {
        const PinnedEnvironment pinned;
        body(0, n);
        return;
    }
    if (pool == nullptr) pool = new Pool(requested_threads - 1);
    const int64_t pieces = 4LL * requested_threads;
    Job job{n, (grains + pieces - 1) / pieces * grain, &body};
    pool->run(job);
    if (job.error) std::rethrow_exception(job.error);
}

}  // namespace neuronsim
