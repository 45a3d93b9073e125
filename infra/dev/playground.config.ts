// What `npm start` shows with the simulated platform and the scripted model, while there is no larkline.config.ts.
const memory = { person: "direct", chat: true };

export default {
  agents: {
    default: {
      memory,
      files: true,
      todos: true,
      questions: true,
      description: "The front desk.",
      handoffs: [{ agent: "expert", when: "the person asks for the expert" }],
    },
    expert: { memory, questions: true, description: "Knows everything about Larkline.", handoffs: ["default"] },
  },
};
