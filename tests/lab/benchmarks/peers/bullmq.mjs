// BullMQ: `add` with a delay, `addBulk`, and what a worker does with what is due.
// It takes what driver.py takes, and answers as that does; and `bulk COUNT`, as `schedule` does.
import { Queue, Worker } from "bullmq";
import { Redis } from "ioredis";

const [url, action, countText, spanText] = process.argv.slice(2);
const count = Number(countText);
const connection = new Redis(url, { maxRetriesPerRequest: null });
const queue = new Queue("benchmark", { connection });
const now = () => performance.timeOrigin + performance.now();
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const DAY = 86400e3;

const shuffled = (start) => {
  const due = Array.from({ length: count }, (_, at) => start + 2 * at);
  for (let at = count - 1; at > 0; at -= 1) {
    const other = Math.floor(Math.random() * (at + 1));
    [due[at], due[other]] = [due[other], due[at]];
  }
  return due;
};
const job = (due) => ({ name: "noop", data: { x: 1, y: 2, due }, opts: { delay: due - Date.now() } });
const addBulk = async (due) => {
  for (let at = 0; at < count; at += 1000) await queue.addBulk(due.slice(at, at + 1000).map(job));
};
const timed = async (work) => {
  const started = now();
  await work();
  return { seconds: (now() - started) / 1000 };
};

const actions = {
  schedule: () =>
    timed(async () => {
      for (const due of shuffled(Date.now() + DAY)) {
        const { name, data, opts } = job(due);
        await queue.add(name, data, opts);
      }
    }),
  bulk: () => timed(() => addBulk(shuffled(Date.now() + DAY))),
  drain: async () => {
    // A delay cannot be negative, so they fall due while this waits.
    await addBulk(Array.from({ length: count }, () => Date.now() + 8000 + Math.random() * 1000));
    const worker = new Worker("benchmark", null, { connection });
    await pause(11000);
    return timed(async () => {
      // Each look for a job moves up to a thousand ids that are due.
      while ((await queue.getDelayedCount()) > 0) await worker.getNextJob("token", { block: false });
    });
  },
  lateness: async () => {
    const late = [];
    const worker = new Worker("benchmark", async ({ data }) => late.push(now() - data.due), { connection });
    await worker.waitUntilReady();
    const start = Date.now() + 2000;
    for (let at = 0; at < count; at += 1) {
      const { name, data, opts } = job(start + Math.floor(Math.random() * Number(spanText) * 1000));
      await queue.add(name, data, opts);
    }
    const until = start + Number(spanText) * 1000 + 30000;
    while (late.length < count && Date.now() < until) await pause(50);
    return { late_ms: late };
  },
  idle: async () => {
    const worker = new Worker("benchmark", async () => {}, { connection });
    await worker.waitUntilReady();
    console.log("ready");
    await pause(count * 1000);
    return {};
  },
};

console.log(JSON.stringify(await actions[action]()));
process.exit(0);
