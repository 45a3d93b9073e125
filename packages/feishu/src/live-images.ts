import { imageRefsIn } from "./cards/index.ts";
import type { FeishuApi } from "./feishu-api.ts";
import type { ImageResolver } from "./reply-finisher.ts";

export interface LiveImagesDeps {
  imageOf: ImageResolver;
  /** How long a card waits for an image, ms; then it goes on with the name, and the last frame shows the image. Default 5 s. */
  waitMs?: number;
}

/** The images of one reply while it types. */
export interface ReplyImages {
  /** By what the answer calls them; `null`: none to show; missing: on its way, the card waits. Changes while the reply runs. */
  readonly keys: ReadonlyMap<string, string | null>;
  /** Has to see an answer before it is drawn with `keys`. */
  look(answer: string): void;
}

/** Images of the replies that this process types. */
export interface LiveImages {
  /** `onResolved` is called when `keys` knows more, so that the card can go on. */
  ofReply(api: FeishuApi, onResolved: () => void): ReplyImages;
}

const defaultWaitMs = 5_000;
/** Keys that are remembered, so that a turn that goes on does not take back for a moment what it showed. */
const maxRemembered = 500;

/**
 * Uploads images as soon as the answer that types has named them: otherwise people would read names
 * and see the text change under their eyes at the end. Nothing here fails a reply or holds it for long.
 */
export function createLiveImages({ imageOf, waitMs = defaultWaitMs }: LiveImagesDeps): LiveImages {
  const known = new Map<string, string>();

  const resolve = async (api: FeishuApi, reference: string): Promise<string | null> => {
    const key = await imageOf(api, reference, AbortSignal.timeout(waitMs)).catch(() => null);
    if (key === null) return null;
    known.set(`${api.appId} ${reference}`, key);
    const [oldest] = known.keys();
    if (known.size > maxRemembered && oldest !== undefined) known.delete(oldest);
    return key;
  };

  return {
    ofReply: (api, onResolved) => {
      const keys = new Map<string, string | null>();
      const asked = new Set<string>();
      const ask = async (reference: string): Promise<void> => {
        keys.set(reference, await resolve(api, reference));
        onResolved();
      };
      return {
        keys,
        look: (answer) => {
          for (const reference of imageRefsIn(answer)) {
            if (asked.has(reference)) continue;
            asked.add(reference);
            const key = known.get(`${api.appId} ${reference}`);
            if (key === undefined) void ask(reference);
            else keys.set(reference, key);
          }
        },
      };
    },
  };
}
