document.title = "Gantry";
