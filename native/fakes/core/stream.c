#include "stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "call.h"
#include "ledger.h"
#include "plan.h"
#include "ranges.h"

struct work {
  struct work *next;
  void *to;
  const void *from;
  size_t size;
  struct mx_range *held[2];
  CUstream awaited; /* stands still until this stream has done `ticket` */
  unsigned long long ticket;
  mx_callback callback;
  void *data;
};

/* Streams and events are never freed, so that a stale handle is recognised. */
struct mx_stream {
  struct mx_stream *next;
  CUcontext context;
  bool alive;
  struct work *first, **last;
  unsigned long long queued, done;
};

struct mx_event {
  struct mx_event *next;
  CUcontext context;
  bool alive;
  CUstream stream; /* where it was recorded last */
  unsigned long long ticket;
};

static struct mx_stream *streams;
static struct mx_event *events;

static bool null_stream(CUstream stream) { return (uintptr_t)stream <= 2; }

static void do_work(CUstream stream, struct work *work) {
  while (work->awaited && work->awaited->done < work->ticket) mx_wait();
  mx_unlock();
  if (work->to) {
    size_t ms = mx_settings.async_ms;
    struct timespec rest = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&rest, NULL);
    memmove(work->to, work->from, work->size);
  }
  if (work->callback) work->callback(stream, CUDA_SUCCESS, work->data);
  mx_lock();
  for (int at = 0; at < 2; at++)
    if (work->held[at]) mx_let_go(work->held[at]);
  if (work->to) mx_closed("copy", (uintptr_t)work);
}

static void *run(void *argument) {
  struct mx_stream *stream = argument;
  mx_lock();
  while (stream->alive || stream->first) {
    struct work *work = stream->first;
    if (!work) {
      mx_wait();
      continue;
    }
    do_work(stream, work);
    stream->first = work->next;
    if (!stream->first) stream->last = &stream->first;
    free(work);
    stream->done++;
    mx_changed();
  }
  mx_unlock();
  return NULL;
}

static void queue(CUstream stream, struct work work) {
  struct work *made = malloc(sizeof *made);
  *made = work;
  *stream->last = made;
  stream->last = &made->next;
  stream->queued++;
  if (work.to) mx_opened("copy", (uintptr_t)made, work.size);
  mx_changed();
}

CUresult mx_stream_create(CUstream *stream, CUcontext context) {
  struct mx_stream *made = malloc(sizeof *made);
  *made = (struct mx_stream){.next = streams, .context = context, .alive = true};
  made->last = &made->first;
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, made)) {
    free(made);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  pthread_detach(thread);
  streams = made;
  mx_opened("stream", (uintptr_t)made, 0);
  *stream = made;
  return CUDA_SUCCESS;
}

CUresult mx_stream_check(CUstream stream) {
  if (null_stream(stream)) return CUDA_SUCCESS;
  for (struct mx_stream *at = streams; at; at = at->next)
    if (at == stream) return at->alive ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  return CUDA_ERROR_INVALID_HANDLE;
}

/* What is queued is still done. */
CUresult mx_stream_destroy(CUstream stream) {
  if (null_stream(stream) || mx_stream_check(stream)) return CUDA_ERROR_INVALID_HANDLE;
  stream->alive = false;
  mx_closed("stream", (uintptr_t)stream);
  mx_changed();
  return CUDA_SUCCESS;
}

bool mx_stream_idle(CUstream stream) { return null_stream(stream) || stream->done == stream->queued; }

void mx_stream_drain(CUstream stream) {
  while (!mx_stream_idle(stream)) mx_wait();
}

void mx_streams_drain(CUcontext context) {
  for (struct mx_stream *at = streams; at; at = at->next)
    if (at->context == context) mx_stream_drain(at);
}

void mx_streams_end(CUcontext context) {
  mx_streams_drain(context);
  for (struct mx_stream *at = streams; at; at = at->next)
    if (at->alive && at->context == context) mx_stream_destroy(at);
  for (struct mx_event *at = events; at; at = at->next)
    if (at->alive && at->context == context) mx_event_destroy(at);
}

void mx_stream_copy(CUstream stream, void *to, const void *from, size_t size) {
  if (!size) return;
  struct work work = {.to = to, .from = from, .size = size};
  work.held[0] = mx_hold(MX_MOVING, (uintptr_t)to, size, "is written by a copy in flight");
  work.held[1] = mx_hold(MX_MOVING, (uintptr_t)from, size, "is read by a copy in flight");
  if (!null_stream(stream)) {
    queue(stream, work);
    return;
  }
  mx_unlock();
  memmove(to, from, size);
  mx_lock();
  mx_let_go(work.held[0]);
  mx_let_go(work.held[1]);
}

void mx_stream_callback(CUstream stream, mx_callback callback, void *data) {
  if (!null_stream(stream)) {
    queue(stream, (struct work){.callback = callback, .data = data});
    return;
  }
  mx_unlock();
  callback(stream, CUDA_SUCCESS, data);
  mx_lock();
}

void mx_stream_wait(CUstream stream, CUevent event) {
  if (!event->stream) return;
  if (null_stream(stream)) {
    while (!mx_event_done(event)) mx_wait();
  } else {
    queue(stream, (struct work){.awaited = event->stream, .ticket = event->ticket});
  }
}

CUresult mx_event_create(CUevent *event, CUcontext context) {
  struct mx_event *made = malloc(sizeof *made);
  *made = (struct mx_event){.next = events, .context = context, .alive = true};
  events = made;
  mx_opened("event", (uintptr_t)made, 0);
  *event = made;
  return CUDA_SUCCESS;
}

CUresult mx_event_check(CUevent event) {
  for (struct mx_event *at = events; at; at = at->next)
    if (at == event) return at->alive ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult mx_event_destroy(CUevent event) {
  if (mx_event_check(event)) return CUDA_ERROR_INVALID_HANDLE;
  event->alive = false;
  mx_closed("event", (uintptr_t)event);
  return CUDA_SUCCESS;
}

void mx_event_record(CUevent event, CUstream stream) {
  event->stream = null_stream(stream) ? NULL : stream;
  event->ticket = event->stream ? stream->queued : 0;
}

bool mx_event_done(CUevent event) { return !event->stream || event->stream->done >= event->ticket; }
