import { setTimeout as delay } from "node:timers/promises";
import { measureTurns, spread, startSubject, type Spread, type Subject } from "./measure.ts";

/** What becomes of messages that come faster than they can be answered. */
export interface BurstNumbers {
  name: string;
  sent: number;
  /** Really handed to the network, messages a second. */
  perSecond: number;
  /** From the request to its acknowledgement; the platform waits 3 s. */
  ackMs: Spread;
  /** Not acknowledged at the first try. */
  repeated: number;
  /** From the first message to the last answer. */
  answeredSeconds: number;
  lost: number;
}

export interface BurstOptions {
  perSecond: number;
  seconds: number;
  /** Chats that the messages are spread over. */
  chats: number;
}

const tickMs = 10;
/** How long the last answer may take. */
const patienceMs = 180_000;

/** Sends messages at a fixed rate, whatever becomes of those before them. */
export async function measureBurst(
  subject: Subject,
  { perSecond, seconds, chats }: BurstOptions,
): Promise<BurstNumbers> {
  const system = await startSubject(subject);
  try {
    const { feishu, appId } = system;
    await measureTurns(system, { inFlight: 32, messages: 1_500, perChat: 5 }); // compiled code from then on
    const open = new Set<string>();
    feishu.on("message", ({ senderType, parentId }) => {
      if (senderType === "app" && parentId !== undefined) open.delete(parentId);
    });
    const people = Array.from({ length: chats }, (_, chat) => system.person(`burst ${chat}`));
    const deliveries: Promise<{ attempts: readonly { durationMs: number; acknowledged: boolean }[] }>[] = [];
    const send = async (index: number): Promise<void> => {
      const person = people[index % chats];
      if (person === undefined) return;
      const { messageId, delivery } = await feishu.sendMessage({
        appId,
        chatId: person.chatId,
        from: person.openId,
        text: `burst ${index}`,
      });
      open.add(messageId);
      deliveries.push(delivery);
    };
    const total = perSecond * seconds;
    const startMs = performance.now();
    const sends: Promise<void>[] = [];
    while (sends.length < total) {
      const due = Math.min(total, Math.floor(((performance.now() - startMs) / 1_000) * perSecond));
      while (sends.length < due) sends.push(send(sends.length));
      await delay(tickMs);
    }
    await Promise.all(sends);
    const sentMs = performance.now() - startMs;
    const attempts = (await Promise.all(deliveries)).map((report) => report.attempts);
    const untilMs = performance.now() + patienceMs;
    while (open.size > 0 && performance.now() < untilMs) await delay(20);
    return {
      name: subject.name,
      sent: total,
      perSecond: (total * 1_000) / sentMs,
      ackMs: spread(attempts.map(([first]) => first?.durationMs ?? Number.NaN)),
      repeated: attempts.filter(({ length }) => length > 1).length,
      answeredSeconds: (performance.now() - startMs) / 1_000,
      lost: open.size,
    };
  } finally {
    await system.close();
  }
}
