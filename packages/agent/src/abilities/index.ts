import type { Ability } from "../turn/ability.ts";
import { memory } from "./memory/memory.ts";
import { todos } from "./todos/todos.ts";

/** All abilities. The order is that of their panels on a card. */
export const allAbilities: readonly Ability[] = [todos, memory] as readonly Ability[];
