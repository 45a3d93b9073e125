import { replacing } from "../simulated-api.fixture.ts";
import type { Parts } from "./reply-world.fixture.ts";

// For tests: a process that dies or hangs at a chosen step, a step being a write to the ledger, to the
// outbox or to the platform.

export interface Fate {
  /** Step at which it happens, from 1. */
  at: number;
  moment: "before" | "after";
  /** Resolves when a process that hangs continues; without it the process dies. */
  hangs?: Promise<void>;
}

export interface Mortal {
  parts: Parts;
  /** Whether the step has come. */
  met: () => boolean;
  /** Resolves when the step has come. */
  reached: Promise<void>;
}

class Dead extends Error {
  override readonly name = "Dead";
}

export function mortal({ api, ledger, outbox }: Parts, fate: Fate): Mortal {
  let steps = 0;
  let dead = false;
  let met = false;
  const reached = Promise.withResolvers<void>();

  const meet = async (): Promise<void> => {
    met = true;
    reached.resolve();
    if (fate.hangs !== undefined) return await fate.hangs;
    dead = true;
    throw new Dead();
  };
  const step = async <T>(run: () => Promise<T>): Promise<T> => {
    if (dead) throw new Dead();
    steps += 1;
    const mine = steps === fate.at;
    if (mine && fate.moment === "before") await meet();
    const result = await run();
    if (mine && fate.moment === "after") await meet();
    return result;
  };

  const cards = replacing(api.cards, {
    create: (...call) => step(() => api.cards.create(...call)),
    sendReply: (...call) => step(() => api.cards.sendReply(...call)),
    sendTo: (...call) => step(() => api.cards.sendTo(...call)),
    content: (...call) => step(() => api.cards.content(...call)),
    batch: (...call) => step(() => api.cards.batch(...call)),
    settings: (...call) => step(() => api.cards.settings(...call)),
    update: (...call) => step(() => api.cards.update(...call)),
  });
  const messages = replacing(api.messages, {
    reply: (...call) => step(() => api.messages.reply(...call)),
    send: (...call) => step(() => api.messages.send(...call)),
  });
  return {
    parts: {
      api: replacing(api, { cards, messages }),
      ledger: replacing(ledger, { save: (...call) => step(() => ledger.save(...call)) }),
      outbox: replacing(outbox, {
        ack: (...call) => step(() => outbox.ack(...call)),
        retry: (...call) => step(() => outbox.retry(...call)),
        lease: (...call) => step(() => outbox.lease(...call)),
      }),
    },
    met: () => met,
    reached: reached.promise,
  };
}
