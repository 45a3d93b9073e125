import { Type } from "typebox";

/**
 * Features that a process must have to go on with what is stored. One that lacks any of them leaves it to others:
 * what it does not know it might lose, and that would be worse than a wait. The first field of stored JSON, so
 * that scripts find it without reading the rest.
 */
export const Needs = Type.Array(Type.String({ pattern: "^[a-z0-9-]{1,40}$" }), { maxItems: 20 });

/**
 * What this version can go on with. `held-step`: checkpoints that hold what the model said with its calls.
 * `put-off-step`: those whose model step waits for its next try.
 */
export const knownFeatures: readonly string[] = ["held-step", "put-off-step"];
