import { createHmac, timingSafeEqual } from "node:crypto";
import { newEngineError, type SessionKey } from "@larkline/protocol";

/** What of a session's state is content that a worker believes: the checkpoint, the summary, the settings. */
type Sealed = "turn" | "summary" | "settings";

const format = "1";

/** `1.<epoch of the writer>.<HMAC-SHA-256, base64url>.<text>` */
const sealedText = /^1\.(\d+)\.([A-Za-z0-9_-]{43})\.(.*)$/s;

export function damagedState(what: Sealed, session: SessionKey, problem: string): Error {
  return newEngineError("internal_error", `stored ${what} of ${session} is damaged: ${problem}`, {
    suggestion:
      "Do all workers have the same CALL_SIGNING_KEY? If so, something else has written to Redis: see docs/trust.md.",
  });
}

/** The text of a sealed value, unchecked: for processes that only show it. */
export function unsealed(stored: string): string {
  return sealedText.exec(stored)?.[3] ?? stored;
}

/**
 * Seals what workers store of a session, with a key that only workers have: a value that another process has
 * written, or that belongs to another session, is never run. The epoch of the writer is sealed, too: a value
 * from the future of the claim that reads it is none of this Redis.
 */
export class StateSeal {
  readonly #key: string;

  /** `key`: see `stateKeyOf`. */
  constructor(key: string) {
    this.#key = key;
  }

  seal(what: Sealed, session: SessionKey, { epoch, text }: { epoch: string; text: string }): string {
    return `${format}.${epoch}.${this.#mac(what, session, { epoch, text }).toString("base64url")}.${text}`;
  }

  /** The sealed text; throws where it is not what a worker has sealed before `epoch`. */
  open(what: Sealed, session: SessionKey, { epoch, stored }: { epoch: string; stored: string }): string {
    const [, writer = "", mac = "", text = ""] = sealedText.exec(stored) ?? [];
    if (writer === "") throw damagedState(what, session, "it is not sealed");
    const given = Buffer.from(mac, "base64url");
    const expected = this.#mac(what, session, { epoch: writer, text });
    if (given.length !== expected.length || !timingSafeEqual(given, expected)) {
      throw damagedState(what, session, "its seal is wrong");
    }
    if (BigInt(writer) > BigInt(epoch)) throw damagedState(what, session, "it is of a later epoch");
    return text;
  }

  #mac(what: Sealed, session: SessionKey, { epoch, text }: { epoch: string; text: string }): Buffer {
    return createHmac("sha256", this.#key)
      .update(JSON.stringify([what, session, epoch]))
      .update(text)
      .digest();
  }
}
