"use strict";
// Marks live in the page; where the browser lets it, they are kept for the next time that it is opened.
(() => {
  const whole = document.querySelector("[data-interview]");
  const forms = [...document.querySelectorAll("form.marks")];
  if (!forms.length) return;
  const key = "kata-interview:" + whole.dataset.interview;
  const fields = forms.flatMap((form) => [...form.elements]).filter((item) => item.name);
  const kept = document.getElementById("kept");

  const values = () => {
    const found = {};
    for (const item of fields) {
      if (item.type === "radio" ? item.checked : item.value) found[item.name] = item.value;
    }
    return found;
  };

  const put = (found) => {
    for (const item of fields) {
      if (item.type === "radio") item.checked = found[item.name] === item.value;
      else item.value = found[item.name] || "";
    }
  };

  const marksOf = (form) =>
    [...form.querySelectorAll(".question")].map((question) => ({
      question: question.querySelector("legend").textContent.replace(/^\d+\. /, ""),
      points: [...question.querySelectorAll(".point")].map((point) => {
        const chosen = point.querySelector("input:checked");
        return { point: point.getAttribute("aria-label"), mark: chosen ? Number(chosen.value) : null };
      }),
      notes: question.querySelector("textarea").value,
    }));

  const sums = () => {
    const points = forms.flatMap(marksOf).flatMap((item) => item.points);
    const marked = points.filter((point) => point.mark !== null);
    return { marks: marked.reduce((sum, point) => sum + point.mark, 0), of: 2 * marked.length, marked: marked.length,
      points: points.length };
  };

  const show = () => {
    const { marks, of, marked, points } = sums();
    document.getElementById("total").textContent = `${marks} of ${of}, ${marked} of ${points} points marked`;
  };

  const changed = () => {
    show();
    try {
      localStorage.setItem(key, JSON.stringify(values()));
      kept.textContent = "Marks are kept in this browser. Save them to take them along.";
    } catch {
      kept.textContent = "This browser keeps nothing for a file: save the marks before you close the page.";
    }
  };

  document.getElementById("save").addEventListener("click", () => {
    const record = {
      kata_interview_marks: 1,
      interview: whole.dataset.interview,
      saved: new Date().toISOString(),
      ...sums(),
      parts: forms.map((form) => ({ part: Number(form.dataset.part), kata: form.dataset.kata, questions: marksOf(form) })),
      fields: values(),
    };
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(record, null, 1) + "\n"], { type: "application/json" }));
    link.download = `interview-${whole.dataset.interview}-marks.json`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });

  document.getElementById("load").addEventListener("change", async (event) => {
    try {
      const record = JSON.parse(await event.target.files[0].text());
      if (record.interview !== whole.dataset.interview) throw new Error(`they are of interview ${record.interview}`);
      put(record.fields);
      changed();
    } catch (error) {
      kept.textContent = `These marks were not loaded: ${error.message}`;
    }
    event.target.value = "";
  });

  document.getElementById("clear").addEventListener("click", () => {
    if (!confirm("Clear all marks and notes of this page?")) return;
    put({});
    changed();
  });

  for (const form of forms) {
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", changed);
  }
  try {
    put(JSON.parse(localStorage.getItem(key)) || {});
    kept.textContent = "Marks are kept in this browser. Save them to take them along.";
  } catch {
    kept.textContent = "This browser keeps nothing for a file: save the marks before you close the page.";
  }
  show();
})();
