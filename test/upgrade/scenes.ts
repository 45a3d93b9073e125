import type { ModelScript } from "@larkline/testkit";
import { obedientModel } from "../system/model-script.ts";
import type { ProcessSystem } from "../system/system.ts";

/** Everything in the recording belongs to this app. */
export const recordedApp = "cli_00000000000000aa";

/** Conversations of the recording, each in another state; named after it. */
export const scenes = ["idle", "queued", "running", "calling", "unsent", "parked"] as const;
export type Scene = (typeof scenes)[number];

/** The conversation of the HTTP API that waits for an approval. */
export const askingSession = "asking";

export function chatOf(scene: Scene): { openId: string; chatId: string } {
  return { openId: `ou_${scene}`, chatId: `oc_${scene}` };
}

/** Gives the platform the people and chats of the recording. */
export function addPeople({ feishu }: ProcessSystem): void {
  for (const scene of scenes) {
    const { openId, chatId } = chatOf(scene);
    feishu.addUser({ openId, name: scene });
    feishu.addChat({ chatId, type: "p2p", members: [openId] });
  }
}

/** Obeys, but never ends its second answer to a message that says `unfinished`. */
export const unfinishedModel: ModelScript = async (request) => {
  const reply = await obedientModel(request);
  const isSecond = (request.messages.at(-1)?.results ?? []).length > 0;
  const asked =
    request.messages.findLast(({ role, text }) => role === "user" && text !== "")?.text ?? "";
  if (!isSecond || !asked.startsWith("unfinished")) return reply;
  return { ...reply, text: ["be", "gun"], fault: { kind: "hang", afterFrames: 3 } };
};
