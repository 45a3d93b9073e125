import { parserOf } from "@larkline/protocol";
import { Type } from "typebox";
import type { ApiCaller, CallOptions } from "./api-caller.ts";
import { pathId } from "./platform-id.ts";

const parseAdded = parserOf(Type.Object({ data: Type.Object({ reaction_id: Type.String({ minLength: 1 }) }) }));
const parseRemoved = parserOf(Type.Object({}));

/** Puts an emoji (`Typing`, `DONE`, ...) below a message; resolves to the id of the reaction. */
export async function addReaction(
  caller: ApiCaller,
  request: { messageId: string; emoji: string },
  options?: CallOptions,
): Promise<string> {
  const api = "im.reaction.create";
  const payload = {
    path: { message_id: pathId(api, request.messageId) },
    data: { reaction_type: { emoji_type: request.emoji } },
  };
  const added = await caller.call(
    { api, run: (client, sdkOptions) => client.im.v1.messageReaction.create(payload, sdkOptions), parse: parseAdded },
    options,
  );
  return added.data.reaction_id;
}

/** Takes the app's own reaction back. */
export async function removeReaction(
  caller: ApiCaller,
  request: { messageId: string; reactionId: string },
  options?: CallOptions,
): Promise<void> {
  const api = "im.reaction.delete";
  const path = { message_id: pathId(api, request.messageId), reaction_id: pathId(api, request.reactionId) };
  await caller.call(
    {
      api,
      run: (client, sdkOptions) => client.im.v1.messageReaction.delete({ path }, sdkOptions),
      parse: parseRemoved,
    },
    options,
  );
}
