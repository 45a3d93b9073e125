import { Queue, QueueEvents, Worker, type Job } from "bullmq";
import type { Message } from "@larkline/protocol/content";
import { Redis } from "ioredis";
import {
  apiOfEnvironment,
  chainOfEnvironment,
  redisUrl,
  serveReady,
  serveWebhook,
} from "./settings.ts";
import { bareLoop } from "./model-step.ts";

// For scale: the same work on BullMQ as its manual shows it (a turn queue, a tool queue, a turn waits
// for its tool's job), with history in the job's process and none of the guarantees.
const connection = new Redis(redisUrl(), { maxRetriesPerRequest: null });
const removal = { removeOnComplete: true };

function ingress(): void {
  const turns = new Queue("naive-turns", { connection });
  serveWebhook(async ({ chatId, messageId, text }) => {
    await turns.add("turn", { chatId, messageId, text }, removal);
  });
}

function logErrors(consumer: Worker): void {
  consumer.on("error", (error) => console.error(error.message));
}

function worker(): void {
  const chain = chainOfEnvironment();
  const api = apiOfEnvironment();
  const tools = new Queue("naive-tools", { connection });
  const events = new QueueEvents("naive-tools", { connection: connection.duplicate() });
  events.setMaxListeners(0);
  const histories = new Map<string, Message[]>();
  const turnWorker = new Worker(
    "naive-turns",
    async ({ data }: Job<{ chatId: string; messageId: string; text: string }>) => {
      const history = histories.get(data.chatId) ?? [];
      histories.set(data.chatId, history);
      history.push({ role: "user", content: [{ type: "text", text: data.text }] });
      const reply = await bareLoop(chain, history, async (argumentsText) => {
        const job = await tools.add(
          "note_pure",
          { argumentsText },
          { removeOnComplete: { age: 60 } },
        );
        return String(await job.waitUntilFinished(events));
      });
      await api.messages.reply({
        messageId: data.messageId,
        text: reply,
        uuid: `naive-${data.messageId}`.slice(0, 50),
        inThread: false,
      });
    },
    { connection, concurrency: 50 },
  );
  logErrors(turnWorker);
  serveReady();
}

function runner(): void {
  const toolWorker = new Worker(
    "naive-tools",
    async ({ data }: Job<{ argumentsText: string }>) => data.argumentsText,
    {
      connection,
      concurrency: 50,
    },
  );
  logErrors(toolWorker);
  serveReady();
}

const roles = { ingress, worker, runner };
const role = process.argv[2];
if (role !== "ingress" && role !== "worker" && role !== "runner") {
  throw new Error("role: ingress, worker or runner");
}
roles[role]();
