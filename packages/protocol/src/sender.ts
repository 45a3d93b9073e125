import { Type, type Static } from "typebox";

/** A person of the platform, by open_id. */
export const Sender = Type.Object({
  id: Type.String(),
  name: Type.Optional(Type.String()),
});
export type Sender = Static<typeof Sender>;
