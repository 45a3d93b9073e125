import { answersTo, write, type Written } from "../system/answers.ts";
import type { ProcessSystem } from "../system/system.ts";

/** A message with the times of the chaos run's own clock, ms. */
export interface Watched extends Written {
  acceptedMs: number;
  /** When its finished answer was first seen; absent: not yet. */
  answeredMs?: number;
}

/** Notes when messages are accepted and when they are answered. */
export interface AnswerWatch {
  write(
    person: { openId: string; chatId: string; mention?: boolean },
    text: string,
  ): Promise<Watched>;
  /** Everything written so far, oldest first. */
  all(): readonly Watched[];
  /** Looks a last time. */
  close(): void;
}

/** How often it looks: the resolution of all times. */
const lookMs = 25;

export function watchAnswers(system: ProcessSystem): AnswerWatch {
  const all: Watched[] = [];
  const open = new Set<Watched>();
  const look = (): void => {
    for (const message of open) {
      if (answersTo(system, message).length === 0) continue;
      message.answeredMs = performance.now();
      open.delete(message);
    }
  };
  const timer = setInterval(look, lookMs);
  return {
    write: async (person, text) => {
      const written: Watched = {
        ...(await write(system, person, text)),
        acceptedMs: performance.now(),
      };
      all.push(written);
      open.add(written);
      return written;
    },
    all: () => all,
    close: () => {
      look();
      clearInterval(timer);
    },
  };
}
